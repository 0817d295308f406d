//! name = "gemv_rows"
//! summary = "A matrix times a vector: 64 invocations a row, four rows a workgroup"
//! bindings = ["a: read tensor", "x: read tensor", "y: write tensor/one if not wide", "y: write tensor/one/float32 if wide"]
//! uniforms = ["rows: u32", "columns: u32"]
//! [options]
//! vector = 4
//! one = 1
//! size = 256
//! lanes = 64
//! subgroup = 0
//! wide = false
#include row
#entry size
  let row = group * {{size // lanes}}u + lane / {{lanes}}u;
  let count = select(0u, u.columns / {{vector}}u, row < u.rows);
  let start = row * (u.columns / {{vector}}u);
  let first = lane & {{lanes - 1}}u;
  // Each lane sums blocks of its own into a second accumulator: long columns stay within the bound of a blocked sum.
  var sum = {{T}}(0.0);
  for (var block = first; block < count; block += {{64 * lanes}}u) {
    var x = {{T}}(0.0);
    for (var i = block; i < min(count, block + {{64 * lanes}}u); i += {{lanes}}u) {
      x = fma(load_a(start + i), load_x(i), x);
    }
    sum += x;
  }
  let y = row_sum(across_sum(sum), lane);
  if first == 0u && row < u.rows { store_y(row, y); }
}
