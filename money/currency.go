package money

import (
	"errors"
	"strings"

	"github.com/bojanz/currency"
)

// ErrCurrencyUnknown is returned for text that is not the code of a currency
// in use: unknown, retired, a test or "no currency" code, or not canonical.
// It never contains the refused text.
var ErrCurrencyUnknown = errors.New("money: not the code of a currency in use")

// Currency is the three-letter ISO 4217 code of a currency in use, upper case.
// A value made by ParseCurrency or NormalizeCurrency is valid; a conversion
// from string is not checked until New, ParseDecimal or Valid sees it.
type Currency string

// digitsByCode is a copy taken at start: the table behind it can be changed by
// any package of the program (currency.Register), ours must not move.
var digitsByCode = loadDigits()

func loadDigits() map[Currency]int {
	codes := currency.GetCurrencyCodes()
	table := make(map[Currency]int, len(codes))
	for _, code := range codes {
		digits, ok := currency.GetDigits(code)
		if !ok {
			panic("money: the currency table lists a code without digits: " + code)
		}
		table[Currency(code)] = int(digits)
	}
	return table
}

// ParseCurrency returns the currency whose canonical code is exactly text.
// Lower case, spaces, invisible characters, unknown and retired codes and
// 'XXX' fail with ErrCurrencyUnknown.
func ParseCurrency(text string) (Currency, error) {
	c := Currency(text)
	if !c.Valid() {
		return "", ErrCurrencyUnknown
	}
	return c, nil
}

// NormalizeCurrency returns the currency that an acquirer's text means: blanks
// and line ends around it are dropped and ASCII letters raised. Everything
// else fails with ErrCurrencyUnknown. Not for what our own clients send.
func NormalizeCurrency(text string) (Currency, error) {
	// ASCII only: Unicode case mapping would turn U+017F into 'S' and so make
	// a currency out of text that no acquirer means.
	raise := func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}
	return ParseCurrency(strings.Map(raise, strings.Trim(text, " \t\r\n")))
}

// Valid reports whether c is the canonical code of a currency in use.
func (c Currency) Valid() bool {
	_, ok := digitsByCode[c]
	return ok
}

// Digits is the number of decimal digits of the minor unit: 2 for USD, 0 for
// JPY, 3 for KWD. It is -1 for a code that is not valid.
func (c Currency) Digits() int {
	digits, ok := digitsByCode[c]
	if !ok {
		return -1
	}
	return digits
}

// String is the code itself.
func (c Currency) String() string { return string(c) }

// UnmarshalText takes exactly what ParseCurrency takes, so that decoded JSON
// cannot carry an unchecked code.
func (c *Currency) UnmarshalText(text []byte) error {
	parsed, err := ParseCurrency(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}
