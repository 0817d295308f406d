//! name = "softmax"
//! summary = "Softmax along rows; a row that fits stays in registers between its passes"
//! bindings = ["a: read tensor", "out: write tensor if not wide", "out: write tensor//float32 if wide"]
//! uniforms = ["rows: u32", "columns: u32"]
//! [options]
//! vector = 4
//! size = 256
//! lanes = 256
//! held = 0
//! subgroup = 0
//! wide = false
#include number
#include row
#entry size
  let row = group * {{size // lanes}}u + lane / {{lanes}}u;
  let count = select(0u, u.columns / {{vector}}u, row < u.rows);
  let start = row * (u.columns / {{vector}}u);
  let first = lane & {{lanes - 1}}u;

  // The largest value. NaN counts as the largest of all, and so its row is found by its maximum.
  var top = 0u;
#if held > 0
#for h in 0..held
  var v_{{h}} = {{T}}(-3.4028235e38);
  if first + {{h * lanes}}u < count {
    v_{{h}} = load_a(start + first + {{h * lanes}}u);
    top = max(top, across_ordered(v_{{h}}));
  }
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) { top = max(top, across_ordered(load_a(start + i))); }
#endif
  top = row_max(top, lane);
  let largest = from_ordered(top);

  var sum = 0.0;
#if held > 0
#for h in 0..held
  v_{{h}} = exp_(v_{{h}} - largest);
  if first + {{h * lanes}}u < count { sum += across_sum(v_{{h}}); }
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) { sum += across_sum(exp_(load_a(start + i) - largest)); }
#endif
  sum = row_sum(sum, lane);

  // A row with NaN or +inf, or of nothing but -inf, is NaN throughout, as in NumPy.
  let size = bitcast<u32>(largest) & 0x7fffffffu;
  let broken = size >= 0x7f800000u;
#if held > 0
#for h in 0..held
  if first + {{h * lanes}}u < count {
    store_out(start + first + {{h * lanes}}u, select(v_{{h}} / sum, {{T}}(u.nan), broken));
  }
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) {
    store_out(start + i, select(exp_(load_a(start + i) - largest) / sum, {{T}}(u.nan), broken));
  }
#endif
}
