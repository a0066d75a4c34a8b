package sandbox

import (
	_ "embed"
	"html/template"
	"net/http"
	"time"

	"github.com/hapaxpay/hapax/money"
)

// maxPageRows bounds the movements that the page shows, newest first.
const maxPageRows = 200

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

type pageRow struct {
	At, Kind, Amount, Currency, Reference, Key, ID string
}

// getPage shows the register to a person.
func (s *Server) getPage(w http.ResponseWriter, _ *http.Request) {
	all, _ := s.book.moved()
	rows := make([]pageRow, 0, maxPageRows)
	for i := len(all) - 1; i >= 0 && len(rows) < maxPageRows; i-- {
		m := all[i]
		amount, err := money.New(m.Amount, m.Currency)
		if err != nil {
			// The register may be older than the table of currencies in use.
			refuse(w, http.StatusInternalServerError, "internal", "a movement has no known currency")
			return
		}
		kind := m.Kind
		if m.Held {
			kind += " of a hold, no money"
		}
		rows = append(rows, pageRow{At: m.At.Format(time.RFC3339), Kind: kind, Amount: amount.Decimal(),
			Currency: m.Currency.String(), Reference: m.Reference, Key: m.IdempotencyKey, ID: m.ID})
	}
	sendPage(w, page, map[string]any{
		"Rows": rows, "Total": len(all), "Contract": s.book.terms(), "Now": s.clock.now().Format(time.RFC3339),
	})
}
