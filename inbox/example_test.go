package inbox_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/inbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A receipt is a row that a mailer sends and then marks as sent. It is written in the transaction that marks the event,
// so that it is written once, though the event comes five times.
func ExampleDatabase_Once() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, inbox.Schema+`CREATE TABLE receipt (id bigint GENERATED ALWAYS AS IDENTITY, address text, body text)`); err != nil {
		log.Fatal(err)
	}

	db := inbox.OverPGX(pool)
	event := []byte(`{"specversion":"1.0","id":"evt_1","type":"payment.paid","subject":"pi_1","subjectversion":2,"data":{}}`)
	for delivery := 1; delivery <= 5; delivery++ {
		e, err := inbox.ParseEvent(event)
		if err != nil {
			log.Fatal(err)
		}
		first, err := db.Once(ctx, "receipts", e.ID, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO receipt (address, body) VALUES ($1, $2)", "buyer@example.com", "Paid: "+e.Subject)
			return err
		})
		if err != nil {
			log.Fatal(err) // not acknowledged, so it comes again
		}
		fmt.Println("delivery", delivery, "wrote a receipt:", first)
	}
	var receipts int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM receipt").Scan(&receipts); err != nil {
		log.Fatal(err)
	}
	fmt.Println("receipts:", receipts)

	// Output:
	// delivery 1 wrote a receipt: true
	// delivery 2 wrote a receipt: false
	// delivery 3 wrote a receipt: false
	// delivery 4 wrote a receipt: false
	// delivery 5 wrote a receipt: false
	// receipts: 1
}

// A consumer of webhooks: verified on the raw bytes, the effect once, 2xx only after the commit.
func ExampleWebhook() {
	pool, err := pgxpool.New(context.Background(), databaseURL)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	secret, err := signature.ParseSecret(os.Getenv("WEBHOOK_SECRET"))
	if err != nil {
		log.Fatal(err)
	}
	handler, err := inbox.Webhook[pgx.Tx]{
		DB:       inbox.OverPGX(pool),
		Consumer: "receipts",
		Secrets:  func() []signature.Secret { return []signature.Secret{secret} },
		Effect: func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			if e.Type != "payment.paid" {
				return nil
			}
			_, err := tx.Exec(ctx, "INSERT INTO receipt (address, body) VALUES ($1, $2)", "buyer@example.com", "Paid: "+e.Subject)
			return err
		},
	}.Handler()
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /hapax", handler)
}
