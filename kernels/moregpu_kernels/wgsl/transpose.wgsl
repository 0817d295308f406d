//! name = "transpose"
//! summary = "Swaps the last two axes, 32 × 32 at a time through workgroup memory"
//! bindings = ["a: read tensor", "out: write tensor if not wide", "out: write tensor//float32 if wide"]
//! uniforms = ["rows: u32", "columns: u32"]
//! [options]
//! vector = 1
//! wide = false
// 33: a column of the tile touches every bank.
var<workgroup> tile: array<f32, 1056>;

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let offset = wid.x + wid.y * grid.x;
  if offset >= u.groups { return; }
  let group = u.first_group + offset;
  let tiles_n = (u.columns + 31u) / 32u;
  let tiles = tiles_n * ((u.rows + 31u) / 32u);
  let start = (group / tiles) * u.rows * u.columns;
  let row_0 = ((group % tiles) / tiles_n) * 32u;
  let column_0 = ((group % tiles) % tiles_n) * 32u;
  for (var i = lane.y; i < 32u; i += 8u) {
    if row_0 + i < u.rows && column_0 + lane.x < u.columns {
      tile[i * 33u + lane.x] = load_a(start + (row_0 + i) * u.columns + column_0 + lane.x);
    }
  }
  workgroupBarrier();
  for (var i = lane.y; i < 32u; i += 8u) {
    if column_0 + i < u.columns && row_0 + lane.x < u.rows {
      store_out(start + (column_0 + i) * u.rows + row_0 + lane.x, tile[lane.x * 33u + i]);
    }
  }
}
