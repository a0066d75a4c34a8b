package sandbox

import "github.com/hapaxpay/hapax/money"

// Taken is the money that stands under one reference of charges.
type Taken struct {
	// Net is money taken less money given back, in minor units by currency.
	Net map[money.Currency]int64
	// Charges counts the charges with more taken than given back; captures
	// within one charge are one.
	Charges int
}

// Net adds a whole register up, by the reference of the charges: charge and
// capture less refund and chargeback; a reverse undoes what it names, and one
// of a mere hold moved nothing.
func Net(movements []Movement) map[string]Taken {
	type charge struct {
		reference string
		currency  money.Currency
		sums      sums
	}
	var order []string
	charges := map[string]*charge{}
	for _, m := range movements {
		c := charges[m.Charge]
		if c == nil {
			c = &charge{reference: second(m.Reference, m.ChargeReference), currency: m.Currency}
			charges[m.Charge], order = c, append(order, m.Charge)
		}
		c.sums.add(m)
	}
	found := map[string]Taken{}
	for _, id := range order {
		c := charges[id]
		taken, known := found[c.reference]
		if !known {
			taken.Net = map[money.Currency]int64{}
		}
		taken.Net[c.currency] += c.sums.rest()
		if c.sums.rest() > 0 {
			taken.Charges++
		}
		found[c.reference] = taken
	}
	return found
}
