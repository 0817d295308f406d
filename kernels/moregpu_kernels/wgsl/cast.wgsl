//! name = "cast"
//! summary = "Float32 to float16, to nearest even: the last step of whatever cannot store whole vectors of halves"
//! bindings = ["a: read tensor//float32", "out: write tensor"]
//! uniforms = ["count: u32"]
//! [options]
//! vector = 4
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let offset = wid.x + wid.y * grid.x;
  if offset >= u.groups { return; }
  let i = (u.first_group + offset) * 64u + lane;
  if i < (u.count + 3u) / 4u { store_out(i, load_a(i)); }
}
