// Package money holds amounts of money as whole minor units of one currency.
//
// Owns the canonical currency code, the digits of each currency, checked arithmetic, and decimal text.
// Never uses a floating point number, rounds, converts between currencies, or echoes refused input.
// Read next: currency.go for codes, decimal.go for text.
package money

import (
	"cmp"
	"errors"
	"math"
)

// MaxMinor is the default documented maximum of one amount that a client may
// ask for, in minor units (API.md, HAPAX_MAX_AMOUNT). Sums may go beyond it,
// up to what an int64 holds.
const MaxMinor int64 = 999_999_999_999

var (
	// ErrOverflow is returned when a result does not fit into an int64.
	ErrOverflow = errors.New("money: the result does not fit into 64 bits")
	// ErrCurrencyMismatch is returned when two amounts of different currencies meet.
	ErrCurrencyMismatch = errors.New("money: the amounts are in different currencies")
)

// Amount is a number of minor units of one currency: 18600 KWD is 18.600
// dinars. It may be negative. Amounts can be compared with ==. The zero value
// has no currency and is refused by all arithmetic with a real amount.
type Amount struct {
	minor    int64
	currency Currency
}

// New returns the amount of minor units in currency, or ErrCurrencyUnknown.
func New(minor int64, currency Currency) (Amount, error) {
	if !currency.Valid() {
		return Amount{}, ErrCurrencyUnknown
	}
	return Amount{minor: minor, currency: currency}, nil
}

// Must is New for constants and tests: it panics where New would fail.
func Must(minor int64, currency Currency) Amount {
	a, err := New(minor, currency)
	if err != nil {
		panic(err)
	}
	return a
}

// Minor is the number of minor units.
func (a Amount) Minor() int64 { return a.minor }

// Currency is the currency of the amount, empty for the zero Amount.
func (a Amount) Currency() Currency { return a.currency }

// Equal reports whether number and currency are the same.
func (a Amount) Equal(b Amount) bool { return a == b }

// IsZero reports whether the number of minor units is zero, in any currency.
func (a Amount) IsZero() bool { return a.minor == 0 }

// IsPositive reports whether the number of minor units is above zero.
func (a Amount) IsPositive() bool { return a.minor > 0 }

// IsNegative reports whether the number of minor units is below zero.
func (a Amount) IsNegative() bool { return a.minor < 0 }

// Add returns a + b, ErrCurrencyMismatch or ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	if a.currency != b.currency {
		return Amount{}, ErrCurrencyMismatch
	}
	sum := a.minor + b.minor
	// Overflow happened exactly if both addends have the other sign than the sum.
	if (a.minor^sum)&(b.minor^sum) < 0 {
		return Amount{}, ErrOverflow
	}
	return Amount{minor: sum, currency: a.currency}, nil
}

// Sub returns a - b, ErrCurrencyMismatch or ErrOverflow.
func (a Amount) Sub(b Amount) (Amount, error) {
	if a.currency != b.currency {
		return Amount{}, ErrCurrencyMismatch
	}
	difference := a.minor - b.minor
	// Overflow needs operands of different sign and a result that left a's sign.
	if (a.minor^b.minor)&(a.minor^difference) < 0 {
		return Amount{}, ErrOverflow
	}
	return Amount{minor: difference, currency: a.currency}, nil
}

// Neg returns -a, or ErrOverflow for the smallest int64.
func (a Amount) Neg() (Amount, error) {
	if a.minor == math.MinInt64 {
		return Amount{}, ErrOverflow
	}
	return Amount{minor: -a.minor, currency: a.currency}, nil
}

// Cmp returns -1, 0 or 1 as a is below, equal to or above b, or
// ErrCurrencyMismatch.
func (a Amount) Cmp(b Amount) (int, error) {
	if a.currency != b.currency {
		return 0, ErrCurrencyMismatch
	}
	return cmp.Compare(a.minor, b.minor), nil
}

// Sum adds amounts of one currency to zero of that currency. It fails with
// ErrCurrencyUnknown, ErrCurrencyMismatch or, when a partial sum does not fit,
// ErrOverflow.
func Sum(currency Currency, amounts ...Amount) (Amount, error) {
	total, err := New(0, currency)
	if err != nil {
		return Amount{}, err
	}
	for _, a := range amounts {
		if total, err = total.Add(a); err != nil {
			return Amount{}, err
		}
	}
	return total, nil
}
