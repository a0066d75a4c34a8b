package signature

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// AdyenItem is the signed part of one notification item of Adyen (NotificationRequestItem), named as in its JSON. An
// adapter embeds it in what it reads the item into, and so acts on the very values that were verified.
type AdyenItem struct {
	PSPReference        string `json:"pspReference"`
	OriginalReference   string `json:"originalReference"`
	MerchantAccountCode string `json:"merchantAccountCode"`
	MerchantReference   string `json:"merchantReference"`
	Amount              struct {
		Value    json.Number `json:"value"` // minor units, digit for digit
		Currency string      `json:"currency"`
	} `json:"amount"`
	EventCode      string `json:"eventCode"`
	Success        string `json:"success"` // "true" or "false"
	AdditionalData struct {
		HMACSignature string `json:"hmacSignature"`
	} `json:"additionalData"`
}

// VerifyAdyen checks the signature of one item: its fields joined by colons, with nothing escaped whatever they hold, and
// what is absent empty; the key is hexadecimal (ParseHexSecret). Source: Adyen's own libraries and their test vectors,
// since its pages tell of an escape that is not done. No time is signed, and not every field: eventDate and reason, for
// example, are not. Only the psp reference with the event code tells a repeat.
func VerifyAdyen(item AdyenItem, secrets []Secret) error {
	if item.AdditionalData.HMACSignature == "" {
		return fmt.Errorf("%w: additionalData.hmacSignature", ErrMissing)
	}
	content := strings.Join([]string{
		item.PSPReference, item.OriginalReference, item.MerchantAccountCode, item.MerchantReference,
		item.Amount.Value.String(), item.Amount.Currency, item.EventCode, item.Success,
	}, ":")
	return match(secrets, base64.StdEncoding.EncodeToString, []string{item.AdditionalData.HMACSignature}, []byte(content))
}

// VerifyAdyenBody checks a webhook of Adyen's platform family, which signs the whole body; the signature comes in the
// header HmacSignature, the key is hexadecimal (ParseHexSecret). No time is signed.
func VerifyAdyenBody(signature string, body []byte, secrets []Secret) error {
	if signature == "" {
		return fmt.Errorf("%w: HmacSignature", ErrMissing)
	}
	return match(secrets, base64.StdEncoding.EncodeToString, []string{signature}, body)
}
