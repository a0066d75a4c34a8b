package money

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func parse(t *testing.T, text string, c Currency) Amount {
	t.Helper()
	a, err := ParseDecimal(text, c)
	if err != nil {
		t.Fatalf("ParseDecimal(%q, %s): %v", text, c, err)
	}
	return a
}

func TestCase049_ZeroDecimalCurrenciesAreNotMultiplied(t *testing.T) {
	for _, tc := range []struct {
		text     string
		currency Currency
		minor    int64
	}{{"500", "JPY", 500}, {"500", "KRW", 500}, {"1", "CLP", 1}} {
		a := parse(t, tc.text, tc.currency)
		if a.Minor() != tc.minor || a.Decimal() != tc.text {
			t.Errorf("%s %s: got %d minor, text %q", tc.text, tc.currency, a.Minor(), a.Decimal())
		}
	}
	if _, err := ParseDecimal("500.00", "JPY"); !errors.Is(err, ErrTooManyDigits) {
		t.Errorf("500.00 JPY: got %v, want ErrTooManyDigits", err)
	}
}

func TestCase050_ThreeDecimalCurrenciesKeepTheirDigits(t *testing.T) {
	for _, tc := range []struct {
		text     string
		currency Currency
		minor    int64
	}{{"18.600", "KWD", 18600}, {"1.000", "BHD", 1000}, {"0.001", "JOD", 1}, {"0.005", "KWD", 5}} {
		a := parse(t, tc.text, tc.currency)
		if a.Minor() != tc.minor || a.Decimal() != tc.text {
			t.Errorf("%s %s: got %d minor, text %q", tc.text, tc.currency, a.Minor(), a.Decimal())
		}
	}
	left, err := parse(t, "18.600", "KWD").Sub(parse(t, "0.005", "KWD"))
	if err != nil || left.String() != "18.595 KWD" {
		t.Errorf("partial refund leaves %s, %v", left, err)
	}
	if _, err := ParseDecimal("0.0005", "KWD"); !errors.Is(err, ErrTooManyDigits) {
		t.Errorf("four digits: got %v, want ErrTooManyDigits", err)
	}
}

func TestCase051_EveryPriceToOneHundredIsExact(t *testing.T) {
	for want := int64(1); want <= 10_000; want++ {
		text := fmt.Sprintf("%d.%02d", want/100, want%100)
		a := parse(t, text, "USD")
		if a.Minor() != want || a.Decimal() != text {
			t.Fatalf("%s: got %d minor, text %q", text, a.Minor(), a.Decimal())
		}
	}
}

func TestCase053_ArithmeticNeverWraps(t *testing.T) {
	most, least := Must(math.MaxInt64, "USD"), Must(math.MinInt64, "USD")
	one := Must(1, "USD")
	checks := map[string]func() (Amount, error){
		"most + 1":     func() (Amount, error) { return most.Add(one) },
		"most + most":  func() (Amount, error) { return most.Add(most) },
		"least - 1":    func() (Amount, error) { return least.Sub(one) },
		"0 - least":    func() (Amount, error) { return Must(0, "USD").Sub(least) },
		"-least":       least.Neg,
		"sum":          func() (Amount, error) { return Sum("USD", most, one, Must(-1, "USD")) },
		"text too big": func() (Amount, error) { return ParseDecimal("92233720368547758.08", "USD") },
	}
	for name, check := range checks {
		if got, err := check(); !errors.Is(err, ErrOverflow) || got != (Amount{}) {
			t.Errorf("%s: got %v, %v; want ErrOverflow", name, got, err)
		}
	}
	if a, err := Must(2147483648, "USD").Add(one); err != nil || a.Minor() != 2147483649 {
		t.Errorf("beyond 32 bits: %v, %v", a, err)
	}
	if a := parse(t, "-92233720368547758.08", "USD"); a != least {
		t.Errorf("smallest value: %v", a)
	}
	if _, err := ParseDecimal("1e18", "USD"); !errors.Is(err, ErrDecimalSyntax) {
		t.Errorf("exponent: got %v, want ErrDecimalSyntax", err)
	}
}

func TestCase054_OneCanonicalCurrencyCode(t *testing.T) {
	refused := []string{"", "usd", "Usd", " USD", "USD ", "US\u200bD", "USD\u200b", "\ufeffUSD", "US", "USDT", "XXX", "XTS",
		"XAU", "ZZZ", "840", "U$D", "ＵＳＤ", "DEM", "FRF", "ITL", "EEK", "LTL", "HRK", "BGN", "BYR", "CUC", "MRO", "STD",
		"SLL", "VEF", "VEB", "ZWL", "ZMK", "TRL", "ROL", "SDD", "GHC", "AZM", "ANG", "RUR"}
	for _, text := range refused {
		if c, err := ParseCurrency(text); !errors.Is(err, ErrCurrencyUnknown) || c != "" {
			t.Errorf("ParseCurrency(%q) = %q, %v", text, c, err)
		}
	}
	for _, text := range []string{"USD", "usd", "Usd", " USD", "usd\r\n", "\tusd "} {
		if c, err := NormalizeCurrency(text); err != nil || c != "USD" {
			t.Errorf("NormalizeCurrency(%q) = %q, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "US", "u s d", "US\u200bD", "u\u017fd", "xxx", "dem", "\u00a0USD"} {
		if c, err := NormalizeCurrency(text); !errors.Is(err, ErrCurrencyUnknown) || c != "" {
			t.Errorf("NormalizeCurrency(%q) = %q, %v", text, c, err)
		}
	}
	var body struct{ Currency Currency }
	if err := json.Unmarshal([]byte(`{"currency":"usd"}`), &body); !errors.Is(err, ErrCurrencyUnknown) {
		t.Errorf("JSON with a lower-case code: %v", err)
	}
	if _, err := New(1, "usd"); !errors.Is(err, ErrCurrencyUnknown) {
		t.Errorf("New with a lower-case code: %v", err)
	}
}

func TestMismatchIsRefused(t *testing.T) {
	usd, eur := Must(1, "USD"), Must(1, "EUR")
	if _, err := usd.Add(eur); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Add: %v", err)
	}
	if _, err := usd.Sub(eur); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Sub: %v", err)
	}
	if _, err := usd.Cmp(eur); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Cmp: %v", err)
	}
	if _, err := usd.Add(Amount{}); !errors.Is(err, ErrCurrencyMismatch) {
		t.Errorf("Add of the zero value: %v", err)
	}
}

func TestDecimalSyntax(t *testing.T) {
	for _, text := range []string{"", "-", ".", "1.", ".5", "+1", "1,5", "1 000", " 1", "1 ", "--1", "1.-5", "0x1", "1_0",
		"1.2.3", "NaN", "Inf", "１", "1.0e1", "000000000000000000000000000000000.01"} {
		if a, err := ParseDecimal(text, "USD"); !errors.Is(err, ErrDecimalSyntax) {
			t.Errorf("ParseDecimal(%q) = %v, %v", text, a, err)
		}
	}
	for text, minor := range map[string]int64{"0": 0, "-0": 0, "-0.05": -5, "8.2": 820, "8.20": 820, "19.99": 1999, "007.5": 750} {
		if a := parse(t, text, "USD"); a.Minor() != minor {
			t.Errorf("ParseDecimal(%q) = %d, want %d", text, a.Minor(), minor)
		}
	}
	if _, err := ParseDecimal("1", "XXX"); !errors.Is(err, ErrCurrencyUnknown) {
		t.Errorf("unknown currency: %v", err)
	}
}

func anyAmount() *rapid.Generator[Amount] {
	return rapid.Custom(func(t *rapid.T) Amount {
		currency := rapid.SampledFrom([]Currency{"USD", "JPY", "KWD", "CLF"}).Draw(t, "currency")
		return Must(rapid.Int64().Draw(t, "minor"), currency)
	})
}

func TestArithmeticAgreesWithBigIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyAmount().Draw(t, "a"), anyAmount().Draw(t, "b")
		check := func(name string, got Amount, err error, want *big.Int) {
			switch {
			case a.Currency() != b.Currency():
				if !errors.Is(err, ErrCurrencyMismatch) {
					t.Fatalf("%s across currencies: %v", name, err)
				}
			case !want.IsInt64():
				if !errors.Is(err, ErrOverflow) {
					t.Fatalf("%s beyond 64 bits: %v, %v", name, got, err)
				}
			case err != nil || got.Minor() != want.Int64() || got.Currency() != a.Currency():
				t.Fatalf("%s = %v, %v; want %v", name, got, err, want)
			}
		}
		x, y := big.NewInt(a.Minor()), big.NewInt(b.Minor())
		sum, err := a.Add(b)
		check("Add", sum, err, new(big.Int).Add(x, y))
		difference, err := a.Sub(b)
		check("Sub", difference, err, new(big.Int).Sub(x, y))
	})
}

func TestDecimalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAmount().Draw(t, "a")
		back, err := ParseDecimal(a.Decimal(), a.Currency())
		if err != nil || back != a {
			t.Fatalf("%#v -> %q -> %#v, %v", a, a.Decimal(), back, err)
		}
	})
}

func FuzzParseDecimal(f *testing.F) {
	for _, seed := range []struct{ text, currency string }{{"8.20", "USD"}, {"19.99", "EUR"}, {"500", "JPY"}, {"18.600", "KWD"},
		{"-0.05", "USD"}, {"1e18", "USD"}, {"92233720368547758.08", "USD"}, {"1.0000", "CLF"}, {"１", "USD"}, {"", "XXX"}} {
		f.Add(seed.text, seed.currency)
	}
	f.Fuzz(func(t *testing.T, text, code string) {
		a, err := ParseDecimal(text, Currency(code))
		if err != nil {
			if a != (Amount{}) {
				t.Fatalf("an error came with the amount %#v", a)
			}
			return
		}
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("accepted %q, which is not a number", text)
		}
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(a.Currency().Digits())), nil)
		exact.Mul(exact, new(big.Rat).SetInt(scale))
		if !exact.IsInt() || exact.Num().Cmp(big.NewInt(a.Minor())) != 0 {
			t.Fatalf("%q %s: got %d, want %s", text, code, a.Minor(), exact)
		}
		if back, err := ParseDecimal(a.Decimal(), a.Currency()); err != nil || back != a {
			t.Fatalf("%q does not come back: %#v, %v", text, back, err)
		}
	})
}
