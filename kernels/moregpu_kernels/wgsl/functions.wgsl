// What formulas call. Special values are decided on bits; the rest is arithmetic that drivers cannot fold away.
fn is_zero(x: {{T}}) -> {{B}} { return (bitcast<{{U}}>(x) & {{U}}(0x7fffffffu)) == {{U}}(0u); }
// Opaque, for a comparison that a compiler sees through (x > x) is a 0, and 0 · y is not 0 where y is infinite or NaN.
fn truth(b: {{B}}) -> {{T}} { return opaque(select({{T}}(0.0), {{T}}(1.0), b)); }
fn either_nan(a: {{T}}, b: {{T}}) -> {{B}} { return is_nan(a) | is_nan(b); }

// WGSL leaves division by 0, by tiny and by huge numbers open.
fn divide(a: {{T}}, b: {{T}}) -> {{T}} {
  let size = abs(b);
  let s = select(select({{T}}(1.0), {{T}}(1.8446744e19), size < {{T}}(1e-36)), {{T}}(5.4210109e-20), size > {{T}}(1e36));
  var y = (a * s) / (b * s);
  let sign = bitcast<{{T}}>((bitcast<{{U}}>(a) ^ bitcast<{{U}}>(b)) & {{U}}(0x80000000u));
  y = select(y, copy_sign({{T}}(u.infinity), sign), is_zero(b) | is_inf(a));
  y = select(y, copy_sign({{T}}(0.0), sign), is_inf(b));
  y = select(y, {{T}}(u.nan), (is_zero(a) & is_zero(b)) | (is_inf(a) & is_inf(b)) | either_nan(a, b));
  return y;
}
fn reciprocal(x: {{T}}) -> {{T}} { return divide({{T}}(1.0), x); }

fn minimum(a: {{T}}, b: {{T}}) -> {{T}} { return select(select(b, a, a < b), {{T}}(u.nan), either_nan(a, b)); }
fn maximum(a: {{T}}, b: {{T}}) -> {{T}} { return select(select(b, a, a > b), {{T}}(u.nan), either_nan(a, b)); }
fn clip(x: {{T}}, low: {{T}}, high: {{T}}) -> {{T}} { return minimum(maximum(x, low), high); }
fn less(a: {{T}}, b: {{T}}) -> {{T}} { return truth((a < b) & !either_nan(a, b)); }
fn less_equal(a: {{T}}, b: {{T}}) -> {{T}} { return truth((a <= b) & !either_nan(a, b)); }
fn equal(a: {{T}}, b: {{T}}) -> {{T}} { return truth((a == b) & !either_nan(a, b)); }
fn not_equal(a: {{T}}, b: {{T}}) -> {{T}} { return truth((a != b) | either_nan(a, b)); }
fn where_(condition: {{T}}, yes: {{T}}, no: {{T}}) -> {{T}} { return select(yes, no, is_zero(condition)); }

fn sign_(x: {{T}}) -> {{T}} {
  let y = truth(x > {{T}}(0.0)) - truth(x < {{T}}(0.0));
  return select(y, {{T}}(u.nan), is_nan(x));
}
fn keep_nan(y: {{T}}, x: {{T}}) -> {{T}} { return select(y, {{T}}(u.nan), is_nan(x)); }
fn square_root(x: {{T}}) -> {{T}} {
  var y = sqrt(max(x, {{T}}(0.0)));
  y = select(y, x, is_zero(x) | (is_inf(x) & !is_negative(x)));
  return select(y, {{T}}(u.nan), is_nan(x) | (is_negative(x) & !is_zero(x)));
}

// log(1 + f) for -0.3 < f < 0.42 (Cephes logf).
fn log_near_one(f: {{T}}) -> {{T}} {
  let z = f * f;
  var p = fma({{T}}(7.0376836292e-2), f, {{T}}(-1.1514610310e-1));
  p = fma(p, f, {{T}}(1.1676998740e-1));
  p = fma(p, f, {{T}}(-1.2420140846e-1));
  p = fma(p, f, {{T}}(1.4249322787e-1));
  p = fma(p, f, {{T}}(-1.6668057665e-1));
  p = fma(p, f, {{T}}(2.0000714765e-1));
  p = fma(p, f, {{T}}(-2.4999993993e-1));
  p = fma(p, f, {{T}}(3.3333331174e-1));
  return fma(p * f, z, fma({{T}}(-0.5), z, f));
}
// x = m·2^e with √½ <= m < √2; subnormal numbers are scaled up by their bits first.
fn log_parts(x: {{T}}, e: ptr<function, {{T}}>) -> {{T}} {
  let bits = bitcast<{{U}}>(x);
  let is_small = bits < {{U}}(0x00800000u);
#if vector == 1
  let scaled = select(bits, bitcast<u32>(f32(bits)) - (149u << 23u), is_small);
  let rebased = scaled - 0x3f3504f3u;
  *e = f32(bitcast<i32>(rebased) >> 23u);
#else
  let scaled = select(bits, bitcast<vec4<u32>>(vec4<f32>(bits)) - vec4<u32>(149u << 23u), is_small);
  let rebased = scaled - vec4<u32>(0x3f3504f3u);
  *e = vec4<f32>(bitcast<vec4<i32>>(rebased) >> vec4<u32>(23u));
#endif
  return bitcast<{{T}}>((rebased & {{U}}(0x007fffffu)) + {{U}}(0x3f3504f3u));
}
fn log_special(y: {{T}}, x: {{T}}) -> {{T}} {
  var z = select(y, {{T}}(-u.infinity), is_zero(x));
  z = select(z, x, is_inf(x));
  return select(z, {{T}}(u.nan), is_nan(x) | (is_negative(x) & !is_zero(x)));
}
fn log_(x: {{T}}) -> {{T}} {
  var e = {{T}}(0.0);
  let m = log_parts(x, &e);
  return log_special(fma(e, {{T}}(0.693359375), opaque(fma(e, {{T}}(-2.12194440e-4), log_near_one(m - 1.0)))), x);
}
fn log2_(x: {{T}}) -> {{T}} {
  var e = {{T}}(0.0);
  let m = log_parts(x, &e);
  return log_special(fma(log_near_one(m - 1.0), {{T}}(1.44269504), e), x);
}
fn log10_(x: {{T}}) -> {{T}} {
  var e = {{T}}(0.0);
  let m = log_parts(x, &e);
  return log_special(fma(e, {{T}}(0.301029996), log_near_one(m - 1.0) * 0.434294482), x);
}
fn log1p_(x: {{T}}) -> {{T}} {
  let near = (x > {{T}}(-0.25)) & (x < {{T}}(0.375));
  return select(log_(1.0 + x), log_near_one(x), near);
}
fn expm1_(x: {{T}}) -> {{T}} {
  var p = fma({{T}}(1.9875691500e-4), x, {{T}}(1.3981999507e-3));
  p = fma(p, x, {{T}}(8.3334519073e-3));
  p = fma(p, x, {{T}}(4.1665795894e-2));
  p = fma(p, x, {{T}}(1.6666665459e-1));
  p = fma(p, x, {{T}}(5.0000001201e-1));
  return keep_nan(select(exp_(x) - 1.0, fma(p, x * x, x), abs(x) < {{T}}(0.34)), x);
}
fn sinh_(x: {{T}}) -> {{T}} {
  let s = x * x;
  var p = fma({{T}}(2.03721912945e-4), s, {{T}}(8.33028376239e-3));
  p = fma(p, s, {{T}}(1.66667160211e-1));
  let near = fma(p * s, x, x);
  // exp(x/2)² in two factors: exp(x) overflows before sinh does.
  let half = exp_(0.5 * abs(x));
  let far = copy_sign(0.5 * half * half - 0.5 / max(half * half, {{T}}(1.0)), x);
  return keep_nan(select(far, near, abs(x) < {{T}}(1.0)), x);
}
fn cosh_(x: {{T}}) -> {{T}} {
  let half = exp_(0.5 * abs(x));
  return keep_nan(0.5 * half * half + 0.5 / max(half * half, {{T}}(1.0)), x);
}
fn softplus(x: {{T}}) -> {{T}} { return keep_nan(max(x, {{T}}(0.0)) + log1p_(exp_(-abs(x))), x); }

// erf as x·P(x²)/Q(x²) on [-4, 4] (the rational approximation of Eigen).
fn erf_(x: {{T}}) -> {{T}} {
  let c = clamp(x, {{T}}(-4.0), {{T}}(4.0));
  let s = c * c;
  var p = fma({{T}}(-2.72614225801306e-10), s, {{T}}(2.77068142495902e-08));
  p = fma(p, s, {{T}}(-2.10102402082508e-06));
  p = fma(p, s, {{T}}(-5.69250639462346e-05));
  p = fma(p, s, {{T}}(-7.34990630326855e-04));
  p = fma(p, s, {{T}}(-2.95459980854025e-03));
  p = fma(p, s, {{T}}(-1.60960333262415e-02));
  var q = fma({{T}}(-1.45660718464996e-05), s, {{T}}(-2.13374055278905e-04));
  q = fma(q, s, {{T}}(-1.68282697438203e-03));
  q = fma(q, s, {{T}}(-7.37332916720468e-03));
  q = fma(q, s, {{T}}(-1.42647390514189e-02));
  return keep_nan(clamp(c * p / q, {{T}}(-1.0), {{T}}(1.0)), x);
}

// Sine and cosine: x = quarter·π/2 + rest, then a polynomial. Up to 8192 by three constants (Cody and Waite), beyond by
// the bits of 2/π (Payne and Hanek), one element at a time.
fn two_over_pi(i: u32) -> u32 {
  // 2/π in words of 32 bits, after one word of zeros.
  switch i {
    case 1u: { return 0xa2f9836eu; }
    case 2u: { return 0x4e441529u; }
    case 3u: { return 0xfc2757d1u; }
    case 4u: { return 0xf534ddc0u; }
    case 5u: { return 0xdb629599u; }
    case 6u: { return 0x3c439041u; }
    case 7u: { return 0xfe5163abu; }
    default: { return 0u; }
  }
}
fn product_high(a: u32, b: u32) -> u32 {
  let ll = (a & 0xffffu) * (b & 0xffffu);
  let lh = (a & 0xffffu) * (b >> 16u);
  let hl = (a >> 16u) * (b & 0xffffu);
  let middle = (ll >> 16u) + (lh & 0xffffu) + (hl & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (lh >> 16u) + (hl >> 16u) + (middle >> 16u);
}
// (quarter mod 4, rest in [-π/4, π/4]) of a finite |x| >= 1.
fn reduce_large(x: f32) -> vec2<f32> {
  let bits = bitcast<u32>(x);
  let e = ((bits >> 23u) & 255u) - 127u;
  // x = mantissa·2^(e - 31): bits of 2/π above place e - 33 give whole turns. The words begin with 32 zeros.
  let mantissa = ((bits & 0x7fffffu) | 0x800000u) << 8u;
  let start = e - 1u;
  let word = start >> 5u;
  let shift = start & 31u;
  var f: array<u32, 3>;
  for (var i = 0u; i < 3u; i += 1u) {
    let high = two_over_pi(word + i);
    let low = two_over_pi(word + i + 1u);
    f[i] = select(high, (high << shift) | (low >> (32u - max(shift, 1u))), shift > 0u);
  }
  // The product mod 4 as a fixed-point number: two bits before the point, 62 after.
  let low = product_high(mantissa, f[2]);
  let middle_low = mantissa * f[1];
  let middle = middle_low + low;
  let carry = select(0u, 1u, middle < middle_low);
  let high = mantissa * f[0] + product_high(mantissa, f[1]) + carry;
  var quarter = high >> 30u;
  var fraction_high = (high << 2u) | (middle >> 30u);
  var fraction_low = middle << 2u;
  let is_upper = (fraction_high >> 31u) == 1u;
  if is_upper {
    quarter = (quarter + 1u) & 3u;
    fraction_high = ~fraction_high;
    fraction_low = ~fraction_low;
  }
  // Normalised before it becomes a float: a small rest keeps all its digits.
  let zeros = min(countLeadingZeros(fraction_high), 31u);
  let top = select(fraction_high, (fraction_high << zeros) | (fraction_low >> (32u - max(zeros, 1u))), zeros > 0u);
  let rest = f32(top) * bitcast<f32>((127u - 32u - zeros) << 23u) * 1.57079633;
  return vec2<f32>(f32(quarter), select(rest, -rest, is_upper));
}
fn wave(x: {{T}}, turn: {{T}}) -> {{T}} {
  let a = abs(x);
  let q = floor(a * 0.636619772 + 0.5);
  var rest = opaque(fma(q, {{T}}(-1.5703125), a));
  rest = opaque(fma(q, {{T}}(-4.837512969970703125e-4), rest));
  rest = fma(q, {{T}}(-7.54978995489188216e-8), rest);
  var quarter = q - 4.0 * floor(q * 0.25);
  let is_large = (a > {{T}}(8192.0)) & !is_inf(x) & !is_nan(x);
#if vector == 1
  if is_large {
    let reduced = reduce_large(a);
    quarter = reduced.x;
    rest = reduced.y;
  }
#else
  if any(is_large) {
#for i in 0..4
    if is_large[{{i}}] {
      let reduced = reduce_large(a[{{i}}]);
      quarter[{{i}}] = reduced.x;
      rest[{{i}}] = reduced.y;
    }
#endfor
  }
#endif
  // sin(-x) = -sin(x), cos(-x) = cos(x); cos is a quarter turn ahead.
  quarter = quarter + turn;
  let r2 = rest * rest;
  var s = fma({{T}}(-1.9515295891e-4), r2, {{T}}(8.3321608736e-3));
  s = fma(s, r2, {{T}}(-1.6666654611e-1));
  s = fma(s * r2, rest, rest);
  var c = fma({{T}}(2.443315711809948e-5), r2, {{T}}(-1.388731625493765e-3));
  c = fma(c, r2, {{T}}(4.166664568298827e-2));
  c = fma(c * r2, r2, fma({{T}}(-0.5), r2, {{T}}(1.0)));
#if vector == 1
  let k = u32(quarter);
#else
  let k = vec4<u32>(quarter);
#endif
  var y = select(s, c, (k & {{U}}(1u)) == {{U}}(1u));
  y = select(y, -y, (k & {{U}}(2u)) == {{U}}(2u));
  y = select(y, select(y, -y, is_negative(x)), turn == {{T}}(0.0));
  return select(y, {{T}}(u.nan), is_nan(x) | is_inf(x));
}
fn sin_(x: {{T}}) -> {{T}} { return wave(x, {{T}}(0.0)); }
fn cos_(x: {{T}}) -> {{T}} { return wave(x, {{T}}(1.0)); }
fn tan_(x: {{T}}) -> {{T}} { return divide(sin_(x), cos_(x)); }

fn power(x: {{T}}, y: {{T}}) -> {{T}} {
  let size = abs(x);
  let whole = floor(y) == y;
  let is_odd = whole & (abs(y) < {{T}}(16777216.0)) & (floor(y * 0.5) * 2.0 != y);
  // The exponent of 2 is kept apart, so that log loses no digits to it.
  var e = {{T}}(0.0);
  let m = log_parts(size, &e);
  let ln_m = log_near_one(m - 1.0);
  let high = e * 0.693359375;
  var z = exp_(y * high + y * fma(e, {{T}}(-2.12194440e-4), ln_m));
  let grows = (size > {{T}}(1.0)) == (y > {{T}}(0.0));
  z = select(z, select({{T}}(0.0), {{T}}(u.infinity), grows), is_inf(y) | is_inf(x) | is_zero(x));
  z = select(z, -z, is_negative(x) & is_odd);
  z = select(z, {{T}}(u.nan), is_negative(x) & !is_zero(x) & !is_inf(x) & !whole);
  z = select(z, {{T}}(1.0), (size == {{T}}(1.0)) & (is_inf(y) | !is_negative(x)));
  z = select(z, {{T}}(u.nan), either_nan(x, y));
  return select(z, {{T}}(1.0), is_zero(y) | ((x == {{T}}(1.0)) & !is_nan(x)));
}
