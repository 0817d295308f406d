//! name = "gemv_columns"
//! summary = "A row times a matrix: an invocation has four columns, and `lanes` of them share a column's K"
//! bindings = ["x: read tensor/one", "b: read tensor/vector_n", "y: write tensor/vector_n if not wide", "y: write tensor/vector_n/float32 if wide"]
//! uniforms = ["n: u32", "k: u32"]
//! [options]
//! one = 1
//! vector_n = 4
//! vector = 4
//! quads = 16
//! lanes = 16
//! wide = false
var<workgroup> sums: array<vec4<f32>, {{quads * lanes}}>;

#entry quads * lanes
  let column = (group * {{quads}}u + lane % {{quads}}u) * 4u;
  let part = lane / {{quads}}u;
  let left = u.n - min(column, u.n);
  // Lane `part` has every {{lanes}}th term, summed in blocks of 256 into a second accumulator.
  var sum = vec4<f32>(0.0);
  if column < u.n {
    for (var block = part; block < u.k; block += {{256 * lanes}}u) {
      var x = vec4<f32>(0.0);
      for (var k = block; k < min(u.k, block + {{256 * lanes}}u); k += {{lanes}}u) {
        x = fma(vec4<f32>(load_x(k)), quad_b(k * u.n + column, left), x);
      }
      sum += x;
    }
  }
  sums[lane] = sum;
  for (var step = {{lanes // 2}}u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if part < step { sums[lane] += sums[lane + step * {{quads}}u]; }
  }
  if part == 0u && column < u.n { put_quad_y(column, left, sums[lane]); }
}
