package scene

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the acquirer's registers side by side, and then what was told and what went to a person.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NET MOVEMENTS BY THE ACQUIRER'S REGISTER\t"+strings.Join(Services, "\t"))
	for n := range r.Scenarios {
		s := &r.Scenarios[n]
		fmt.Fprint(t, s.Name)
		for _, service := range Services {
			fmt.Fprint(t, "\t"+s.Of(service).short())
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for n := range r.Scenarios {
		r.Scenarios[n].tell(&b)
	}
	verdict := "\nHapax: at most one net movement for each order, booked once, and no client was told an untruth.\n"
	if !r.OK {
		verdict = "\nHAPAX BROKE ITS PROMISE, see above.\n"
	}
	_, err := io.WriteString(w, b.String()+verdict)
	return err
}

// short is one cell: how often money moved, and what is wrong with it.
func (o Outcome) short() string {
	words := []string{fmt.Sprint(o.Movements)}
	if o.Movements > 1 {
		words = append(words, "CHARGED "+times(o.Movements))
	}
	if o.Asked > 1 {
		words = append(words, "ASKED "+times(o.Asked))
	}
	if o.bookedTwice() {
		words = append(words, "BOOKED "+times(o.Receipts))
	}
	if o.notBooked() {
		words = append(words, "not booked")
	}
	if o.Untruths > 0 {
		words = append(words, "client misled")
	}
	if o.InReview {
		words = append(words, "a person decides")
	}
	return strings.Join(words, ", ")
}

func times(n int) string {
	if n == 2 {
		return "TWICE"
	}
	return fmt.Sprintf("%d TIMES", n)
}

// tell writes the story of one scenario.
func (r *Result) tell(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s\n", r.Name, r.Title)
	for _, service := range Services {
		o := r.Of(service)
		fmt.Fprintf(b, "  %-9s %s; ends %s; clients were told %s\n", service, o.short(), o.FinalStatus, strings.Join(o.Told, ", "))
		for _, broken := range o.Verify {
			fmt.Fprintf(b, "            verify: %s\n", broken)
		}
	}
}
