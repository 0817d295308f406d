//! name = "matmul_naive"
//! summary = "C = A·B, one invocation an element: what the others are measured against"
//! bindings = ["a: read tensor", "b: read tensor", "c: write tensor"]
//! uniforms = ["m: u32", "n: u32", "k: u32"]
//! [options]
//! vector = 1
@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let offset = wid.x + wid.y * grid.x;
  if offset >= u.groups { return; }
  let group = u.first_group + offset;
  let tiles_n = (u.n + 7u) / 8u;
  let row = (group / tiles_n) * 8u + lane.y;
  let column = (group % tiles_n) * 8u + lane.x;
  if row >= u.m || column >= u.n { return; }
  var sum = 0.0;
  for (var block = 0u; block < u.k; block += 256u) {
    var x = 0.0;
    for (var k = block; k < min(u.k, block + 256u); k += 1u) {
      x = fma(load_a(row * u.k + k), load_b(k * u.n + column), x);
    }
    sum += x;
  }
  store_c(row * u.n + column, sum);
}
