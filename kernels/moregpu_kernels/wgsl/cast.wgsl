//! name = "cast"
//! summary = "Float32 to float16, to nearest even: the last step of whatever cannot store whole vectors of halves"
//! bindings = ["a: read tensor//float32", "out: write tensor"]
//! uniforms = ["count: u32"]
//! [options]
//! vector = 4
#entry 64
  let i = group * 64u + lane;
  if i < (u.count + 3u) / 4u { store_out(i, load_a(i)); }
}
