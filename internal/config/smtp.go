package config

import (
	"fmt"

	"github.com/hapaxpay/hapax/internal/outbox/mail"
)

// SMTP gives the mail server; nil: no mails are sent. The error holds no part of the URL.
func (c Config) SMTP() (*mail.Server, error) {
	if c.SMTPURL == "" {
		return nil, nil
	}
	s, err := mail.ParseServer(c.SMTPURL)
	if err != nil {
		err = fmt.Errorf("HAPAX_SMTP_URL: %w", err)
	}
	return s, err
}
