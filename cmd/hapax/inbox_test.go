package main

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/rig"
)

// What acquirers told is listed with what became of it, and given back to be tried again.
func TestInbox(t *testing.T) {
	clean(t)
	r := rig.New(t, nil)
	t.Setenv("HAPAX_DATABASE_URL", r.DB.Service())
	p := r.Replica()
	for _, body := range []string{"{", `{"id":"evt_2","type":"payout.paid","created_at":"2026-01-02T03:04:05Z","livemode":false,"data":{}}`} {
		m := flow.Message{Merchant: r.Merchant.ID, ID: (&host.Runtime{}).NewID(), Account: r.Merchant.Account, NoticeID: "id", Raw: []byte(body),
			Hash: sha256.Sum256([]byte(body)), Trust: acquirer.TrustSigned}
		err := p.Store.InTx(t.Context(), "keep", func(ctx context.Context, tx flow.Tx) error {
			_, err := tx.KeepMessage(ctx, m)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Intake.Pass(t.Context())
	all := hapax(t, exitGood, "inbox", "list").list("messages")
	if len(all) != 2 {
		t.Fatalf("listed %v", all)
	}
	broken := hapax(t, exitGood, "inbox", "list", "--merchant", r.Merchant.ID.Text(id.Merchant), "--state", "unreadable").list("messages")
	if len(broken) != 1 || broken[0].text("why") == "" || broken[0].text("trust") != "signed" || broken[0].text("ended_at") == "" {
		t.Fatalf("listed %v", broken)
	}
	name := broken[0].text("id")
	hapax(t, exitGood, "inbox", "retry", name)
	if waiting := hapax(t, exitGood, "inbox", "list", "--state", "received").list("messages"); len(waiting) != 1 || waiting[0].text("id") != name {
		t.Errorf("listed %v", waiting)
	}
	hapax(t, exitCouldNot, "inbox", "retry", (&host.Runtime{}).NewID().Text(id.Message))
	hapax(t, exitCouldNot, "inbox", "retry", "evt_2")
	hapax(t, exitCouldNot, "inbox", "list", "--state", "lost")
	hapax(t, exitCouldNot, "inbox", "list", "--merchant", "nobody")
}
