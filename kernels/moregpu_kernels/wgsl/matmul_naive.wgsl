//! name = "matmul_naive"
//! summary = "C = A·B, one invocation an element: what the others are measured against"
//! bindings = ["a: read tensor", "b: read tensor", "c: write tensor"]
//! uniforms = ["m: u32", "n: u32", "k: u32"]
//! [options]
//! vector = 1
#entry 64
  let tiles_n = (u.n + 7u) / 8u;
  let row = (group / tiles_n) * 8u + lane / 8u;
  let column = (group % tiles_n) * 8u + lane % 8u;
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
