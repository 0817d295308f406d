//! name = "reduce"
//! summary = "Sum, mean, largest or smallest of every row; long rows in parts that a second pass joins"
//! bindings = ["a: read tensor/vector/float32 if joins", "a: read tensor if not joins", "out: write f32"]
//! uniforms = ["rows: u32", "columns: u32", "parts: u32", "chunk: u32", "divisor: f32"]
//! [options]
//! vector = 4
//! size = 256
//! lanes = 256
//! subgroup = 0
//! kind = "sum"
//! joins = false
#include number
#include row
#entry size
  // Each part of each row is a piece of its own; columns and chunk count elements.
  let piece = group * {{size // lanes}}u + lane / {{lanes}}u;
  let row = piece / u.parts;
  let begin = (piece % u.parts) * u.chunk;
  let end = select(begin, min(u.columns, begin + u.chunk), row < u.rows);
  let start = row * u.columns;
  let first = lane & {{lanes - 1}}u;
#if kind == "sum"
  var sum = 0.0;
  for (var i = begin + first * {{vector}}u; i < end; i += {{lanes * vector}}u) {
    sum += across_sum(load_a((start + i) / {{vector}}u));
  }
  let result = row_sum(sum, lane) / u.divisor;
#elif kind == "max"
  var top = 0u;
  for (var i = begin + first * {{vector}}u; i < end; i += {{lanes * vector}}u) {
    top = max(top, across_ordered(load_a((start + i) / {{vector}}u)));
  }
  let result = from_ordered(row_max(top, lane));
#else
  // The smallest is minus the largest of -x; NaN stays above all.
  var top = 0u;
  for (var i = begin + first * {{vector}}u; i < end; i += {{lanes * vector}}u) {
    top = max(top, across_ordered(-load_a((start + i) / {{vector}}u)));
  }
  let result = -from_ordered(row_max(top, lane));
#endif
  if first == 0u && row < u.rows { out[piece] = result; }
}
