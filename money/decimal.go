package money

import (
	"errors"
	"strconv"
	"strings"
)

// maxDecimalText bounds the text that ParseDecimal reads: a sign, 19 digits, a
// point, and room for leading zeros of fixed-width files.
const maxDecimalText = 32

var (
	// ErrDecimalSyntax is returned for text that is not a plain decimal number.
	ErrDecimalSyntax = errors.New("money: not a plain decimal number")
	// ErrTooManyDigits is returned when text has more decimal digits than the
	// currency, even if they are zero: 500.00 JPY is the mark of a wrong table.
	ErrTooManyDigits = errors.New("money: more decimal digits than the currency has")
)

// ParseDecimal returns the amount that text writes in major units: "18.600"
// KWD is 18600 minor units, "8.2" USD is 820. The text is ASCII digits with an
// optional leading '-' and an optional '.' between digits; nothing else, no
// exponent, no grouping, no '+'. It is never rounded. It fails with
// ErrCurrencyUnknown, ErrDecimalSyntax, ErrTooManyDigits or ErrOverflow.
func ParseDecimal(text string, currency Currency) (Amount, error) {
	digits := currency.Digits()
	if digits < 0 {
		return Amount{}, ErrCurrencyUnknown
	}
	if len(text) > maxDecimalText {
		return Amount{}, ErrDecimalSyntax
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	whole, fraction, pointed := strings.Cut(unsigned, ".")
	if !allDigits(whole) || pointed && !allDigits(fraction) {
		return Amount{}, ErrDecimalSyntax
	}
	if len(fraction) > digits {
		return Amount{}, ErrTooManyDigits
	}
	number := whole + fraction + strings.Repeat("0", digits-len(fraction))
	if negative {
		number = "-" + number
	}
	minor, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		// Only digits are left, so that range is the one thing that can be wrong.
		return Amount{}, ErrOverflow
	}
	return Amount{minor: minor, currency: currency}, nil
}

func allDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// Decimal writes the amount in major units with all digits of its currency:
// "18.600" for 18600 KWD, "500" for 500 JPY, "-0.05" for -5 USD. ParseDecimal
// reads it back to the same amount.
func (a Amount) Decimal() string {
	digits := max(a.currency.Digits(), 0)
	number := strconv.FormatInt(a.minor, 10)
	unsigned, negative := strings.CutPrefix(number, "-")
	if missing := digits + 1 - len(unsigned); missing > 0 {
		unsigned = strings.Repeat("0", missing) + unsigned
	}
	text := unsigned
	if digits > 0 {
		point := len(unsigned) - digits
		text = unsigned[:point] + "." + unsigned[point:]
	}
	if negative {
		return "-" + text
	}
	return text
}

// String is Decimal and the currency code: "18.600 KWD".
func (a Amount) String() string { return a.Decimal() + " " + string(a.currency) }
