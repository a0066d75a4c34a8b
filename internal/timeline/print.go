package timeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

type lineView struct {
	At     string `json:"at"`
	Source string `json:"source"`
	Text   string `json:"text"`
	// Beside API.md: several stories can be told apart.
	Merchant string `json:"merchant"`
	Intent   string `json:"payment_intent,omitempty"`
}

type view struct {
	OK    bool       `json:"ok"`
	Lines []lineView `json:"lines"`
}

// JSON renders stories as API.md, Command output, says: ok is whether anything was found. Stories follow one another.
func JSON(stories []Story) []byte {
	v := view{OK: len(stories) > 0, Lines: []lineView{}}
	for _, s := range stories {
		for _, l := range s.Lines {
			v.Lines = append(v.Lines, lineView{l.At.UTC().Format(time.RFC3339Nano), l.Source, l.Text, s.Merchant.Text(id.Merchant), s.Intent.Text(id.Intent)})
		}
	}
	out, err := json.Marshal(v)
	if err != nil { // strings and a boolean: cannot fail
		panic(err)
	}
	return out
}

// Text renders stories for a terminal, times in UTC, each day announced once.
func Text(stories []Story) string {
	var b strings.Builder
	for n, s := range stories {
		if n > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s · merchant %s (%s)\n", printable(s.Title), printable(s.MerchantName), s.Merchant.Text(id.Merchant))
		day := ""
		for _, l := range s.Lines {
			at := l.At.UTC()
			if d := at.Format(time.DateOnly); d != day {
				day = d
				fmt.Fprintf(&b, "%s\n", d)
			}
			fmt.Fprintf(&b, "  %s  %-8s  %s\n", at.Format("15:04:05"), l.Source, printable(l.Text))
		}
	}
	return b.String()
}

// printable keeps what others wrote from moving the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}
