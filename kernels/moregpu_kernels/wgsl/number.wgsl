// Tests on bits: drivers may fold x != x to false, x - x to 0 and max(NaN, 1) to 1.
fn is_nan(x: {{T}}) -> {{B}} { return (bitcast<{{U}}>(x) & {{U}}(0x7fffffffu)) > {{U}}(0x7f800000u); }
fn is_inf(x: {{T}}) -> {{B}} { return (bitcast<{{U}}>(x) & {{U}}(0x7fffffffu)) == {{U}}(0x7f800000u); }
fn is_negative(x: {{T}}) -> {{B}} { return (bitcast<{{U}}>(x) >> {{U}}(31u)) == {{U}}(1u); }
fn copy_sign(x: {{T}}, sign: {{T}}) -> {{T}} {
  return bitcast<{{T}}>((bitcast<{{U}}>(x) & {{U}}(0x7fffffffu)) | (bitcast<{{U}}>(sign) & {{U}}(0x80000000u)));
}
// A float made of bits, for results that must not depend on how a driver flushes or folds.
fn power_of_two(biased: {{U}}) -> {{T}} { return bitcast<{{T}}>(biased << {{U}}(23u)); }

// The same number, which no compiler can prove: drivers reassociate sums (Mesa turns k·a + (k·b + c) into k·(a + b) + c),
// and that costs what a two-part constant is there to save.
fn opaque(x: {{T}}) -> {{T}} { return bitcast<{{T}}>(bitcast<{{U}}>(x) ^ {{U}}(u.zero)); }

// exp, within 2 units in the last place where the result is normal (Cephes expf: range reduction and a polynomial).
fn exp_(x: {{T}}) -> {{T}} {
  let c = clamp(x, {{T}}(-104.0), {{T}}(89.0));
  let k = floor(c * 1.44269504 + 0.5);
  let r = fma(k, {{T}}(2.12194440e-4), opaque(fma(k, {{T}}(-0.693359375), c)));
  var p = fma({{T}}(1.9875691500e-4), r, {{T}}(1.3981999507e-3));
  p = fma(p, r, {{T}}(8.3334519073e-3));
  p = fma(p, r, {{T}}(4.1665795894e-2));
  p = fma(p, r, {{T}}(1.6666665459e-1));
  p = fma(p, r, {{T}}(5.0000001201e-1));
  p = fma(p, r * r, r) + 1.0;
  // Two steps, so that neither factor leaves the range of float32; k is -150 to 129.
#if vector == 1
  let half = i32(k) / 2;
  let first = power_of_two(u32(half + 127));
  let second = power_of_two(u32(i32(k) - half + 127));
#else
  let half = vec4<i32>(k) / 2;
  let first = power_of_two(vec4<u32>(half + 127));
  let second = power_of_two(vec4<u32>(vec4<i32>(k) - half + 127));
#endif
  var y = p * first * second;
  y = select(y, {{T}}(u.infinity), x > {{T}}(88.7228395));
  y = select(y, {{T}}(0.0), x < {{T}}(-103.98));
  return select(y, x, is_nan(x));
}

// tanh, within 3 units in the last place (Cephes tanhf).
fn tanh_(x: {{T}}) -> {{T}} {
  let a = abs(x);
  let s = x * x;
  var p = fma({{T}}(-5.70498872745e-3), s, {{T}}(2.06390887954e-2));
  p = fma(p, s, {{T}}(-5.37397155531e-2));
  p = fma(p, s, {{T}}(1.33314422036e-1));
  p = fma(p, s, {{T}}(-3.33332819422e-1));
  let near = fma(p * s, x, x);
  let far = 1.0 - 2.0 / (exp_(2.0 * min(a, {{T}}(10.0))) + 1.0);
  let y = select(copy_sign(far, x), near, a < {{T}}(0.625));
  return select(y, x, is_nan(x));
}

fn sigmoid(x: {{T}}) -> {{T}} {
  // 1 / (1 + exp(-|x|)) never overflows; the other half is exp(-|x|) times it, exact near 0.
  let e = exp_(-abs(x));
  let upper = 1.0 / (1.0 + e);
  let y = select(upper, e * upper, is_negative(x));
  return select(y, x, is_nan(x));
}

fn relu(x: {{T}}) -> {{T}} { return select(max(x, {{T}}(0.0)), x, is_nan(x)); }
fn silu(x: {{T}}) -> {{T}} {
  let y = x * sigmoid(x);
  return select(y, {{T}}(u.nan), is_nan(x) | (is_inf(x) & is_negative(x)));
}

// gelu, tanh form: x·(1 + tanh(√(2/π)(x + 0.044715 x³)))/2. NumPy gives NaN at -inf (0·inf) and so does this.
fn gelu(x: {{T}}) -> {{T}} {
  let c = clamp(x, {{T}}(-20.0), {{T}}(20.0));
  let inner = 0.7978845608 * fma(0.044715 * c * c, c, c);
  // 1 + tanh(z) = 2·sigmoid(2z): no cancellation where x is far below 0.
  let y = x * sigmoid(2.0 * inner);
  return select(y, {{T}}(u.nan), is_nan(x) | (is_inf(x) & is_negative(x)));
}
