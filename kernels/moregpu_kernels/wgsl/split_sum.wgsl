//! name = "split_sum"
//! summary = "Adds the parts of a product whose K was split, in their order, and applies the epilogue"
//! bindings = [
//!   "parts: read tensor/vector_n/float32", "c: write tensor/vector_n if not wide",
//!   "c: write tensor/vector_n/float32 if wide",
//!   "bias: read tensor/vector_n if bias", "residual: read tensor/vector_n if residual",
//! ]
//! uniforms = ["m: u32", "n: u32"]
//! [options]
//! vector = 4
//! vector_n = 4
//! splits = 2
//! wide = false
//! bias = false
//! residual = false
//! epilogue = ""
#include number
#entry 64
  let quads = (u.n + 3u) / 4u;
  let index = group * 64u + lane;
  let row = index / quads;
  if row >= u.m { return; }
  let column = (index % quads) * 4u;
  let left = u.n - column;
  let at = row * u.n + column;
  var x = vec4<f32>(0.0);
  for (var split = 0u; split < {{splits}}u; split += 1u) {
    x += quad_parts(split * u.m * u.n + at, left);
  }
{{epilogue}}
  put_quad_c(at, left, x);
}
