//! name = "transpose"
//! summary = "Swaps the last two axes, 32 × 32 at a time through workgroup memory"
//! bindings = ["a: read tensor", "out: write tensor if not wide", "out: write tensor//float32 if wide"]
//! uniforms = ["rows: u32", "columns: u32"]
//! [options]
//! vector = 1
//! wide = false
// 33: a column of the tile touches every bank.
var<workgroup> tile: array<f32, 1056>;

#entry 256
  let lane_row = lane / 32u;
  let lane_column = lane % 32u;
  let tiles_n = (u.columns + 31u) / 32u;
  let tiles = tiles_n * ((u.rows + 31u) / 32u);
  let start = (group / tiles) * u.rows * u.columns;
  let row_0 = ((group % tiles) / tiles_n) * 32u;
  let column_0 = ((group % tiles) % tiles_n) * 32u;
  for (var i = lane_row; i < 32u; i += 8u) {
    if row_0 + i < u.rows && column_0 + lane_column < u.columns {
      tile[i * 33u + lane_column] = load_a(start + (row_0 + i) * u.columns + column_0 + lane_column);
    }
  }
  workgroupBarrier();
  for (var i = lane_row; i < 32u; i += 8u) {
    if column_0 + i < u.columns && row_0 + lane_column < u.rows {
      store_out(start + (column_0 + i) * u.rows + row_0 + lane_column, tile[lane_column * 33u + i]);
    }
  }
}
