package signature

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The vector of Standard Webhooks, from github.com/standard-webhooks/standard-webhooks,
// libraries/go/webhook_symmetric_test.go and webhook_asymmetric_test.go. A public test value, no credential.
var vector = struct {
	secret, id, stamp, body, signature string
	at                                 time.Time
}{
	"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`,
	"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", time.Unix(1614265330, 0),
}

const (
	asymmetric = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
	otherOne   = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	otherTwo   = "v2,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
)

// Vectors of Adyen: github.com/Adyen/adyen-python-api-library, its tests and test/mocks/util. In the second and third the
// merchant account was replaced, and the item signed again with the published test key.
var adyenVectors = []struct{ key, item string }{
	{"44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056", `{"pspReference":"7914073381342284","merchantAccountCode":"TestMerchant",
		"merchantReference":"TestPayment-1407325143704","amount":{"currency":"EUR","value":1130},"eventCode":"AUTHORISATION","success":"true",
		"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="}}`},
	{"74F490DD33F7327BAECC88B2947C011FC02D014A473AAA33A8EC93E4DC069174", `{"pspReference":"T7FD4VM4D3RZNN82","merchantAccountCode":"TestMerchant",
		"merchantReference":"\\\\slashes are fun","amount":{"currency":"EUR","value":1000},"eventCode":"AUTHORISATION","success":"true",
		"additionalData":{"hmacSignature":"GPNA65dzVrWrcW2TfFg96B4yDUt0toOsy1CHTtgbS4U="},"operations":["CANCEL","CAPTURE","REFUND"],
		"paymentMethod":"visa","eventDate":"2023-01-09T16:27:29+01:00","reason":"076181:1111:03/2030"}`},
	{"74F490DD33F7327BAECC88B2947C011FC02D014A473AAA33A8EC93E4DC069174", `{"pspReference":"M8NB66SBZSGLNK82","merchantAccountCode":"TestMerchant",
		"merchantReference":":slashes are fun","amount":{"currency":"EUR","value":1000},"eventCode":"AUTHORISATION","success":"true",
		"additionalData":{"hmacSignature":"svEQQ9iONuQoK/t4mkUv9WOAOMqVVH6sopDjhHakIOE="},"operations":["CANCEL","CAPTURE","REFUND"],
		"paymentMethod":"visa","eventDate":"2023-01-10T13:40:54+01:00","reason":"039404:1111:03/2030"}`},
}

func adyenItem(t *testing.T, text string) (item AdyenItem) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &item); err != nil {
		t.Fatal(err)
	}
	return item
}

// TestVectorsOfStandardWebhooks plays what the specification's own libraries are tested with.
func TestVectorsOfStandardWebhooks(t *testing.T) {
	secret := parsed(t)(ParseSecret(vector.secret))
	signature, err := Sign(secret, vector.id, vector.at, []byte(vector.body))
	if err != nil || signature != vector.signature {
		t.Errorf("signed %q, %v", signature, err)
	}
	const minute = time.Minute
	for what, tc := range map[string]struct {
		id, stamp, signature, body string
		now                        time.Time
		want                       error
	}{
		"valid":          {vector.id, vector.stamp, vector.signature, vector.body, vector.at, nil},
		"many":           {vector.id, vector.stamp, otherOne + " " + otherTwo + " " + vector.signature + " " + otherOne, vector.body, vector.at, nil},
		"other version":  {vector.id, vector.stamp, asymmetric, vector.body, vector.at, ErrMismatch},
		"beside another": {vector.id, vector.stamp, asymmetric + " " + vector.signature, vector.body, vector.at, nil},
		"written anew":   {vector.id, vector.stamp, vector.signature, `{"test":2432232314}`, vector.at, ErrMismatch},
		"empty":          {vector.id, vector.stamp, "v1,", vector.body, vector.at, ErrMismatch},
		"wrong":          {vector.id, vector.stamp, otherOne, vector.body, vector.at, ErrMismatch},
		"no id":          {"", vector.stamp, vector.signature, vector.body, vector.at, ErrMissing},
		"no time":        {vector.id, "", vector.signature, vector.body, vector.at, ErrMissing},
		"no signature":   {vector.id, vector.stamp, "", vector.body, vector.at, ErrMissing},
		"5 min old":      {vector.id, vector.stamp, vector.signature, vector.body, vector.at.Add(5 * minute), ErrTooOld},
		"5 min 1 s new":  {vector.id, vector.stamp, vector.signature, vector.body, vector.at.Add(-5*minute - time.Second), ErrTooNew},
		"time changed":   {vector.id, "946684800", vector.signature, vector.body, time.Unix(946684800, 0), ErrMismatch},
		"id changed":     {vector.id + "x", vector.stamp, vector.signature, vector.body, vector.at, ErrMismatch},
	} {
		_, err := VerifyStandard(standardHeader(tc.id, tc.stamp, tc.signature), []byte(tc.body), []Secret{secret}, tc.now, 5*minute)
		wantErr(t, what, err, tc.want)
	}
	_, err = VerifyStandard(http.Header{}, []byte(vector.body), []Secret{secret}, vector.at, 0)
	wantErr(t, "no headers", err, ErrMissing)
	// The time is signed: with a window that lets every age pass, another time is still a mismatch.
	_, err = VerifyStandard(standardHeader(vector.id, "946684800", vector.signature), []byte(vector.body), []Secret{secret}, vector.at, 100*365*24*time.Hour)
	wantErr(t, "time changed, any age allowed", err, ErrMismatch)
}

// TestVectorOfSquare plays Square's published example. Its key is shorter than any that we would take.
func TestVectorOfSquare(t *testing.T) {
	key := []byte("asdf1234")
	const url, body, good = "https://example.com/webhook", `{"hello":"world"}`, "2kRE5qRU2tR+tBGlDwMEw2avJ7QM4ikPYD/PJ3bd9Og="
	for _, tc := range []struct {
		url, body, signature string
		want                 error
	}{
		{url, body, good, nil},
		{url + "/", body, good, ErrMismatch},
		{url, body + " ", good, ErrMismatch},
		{url, body, strings.Repeat("é", 44), ErrMismatch},
		{url, body, strings.Repeat("é", 22), ErrMismatch}, // as many bytes as a good one
		{url, body, "", ErrMissing},
	} {
		err := VerifySquare(http.Header{HeaderSquare: {tc.signature}}, tc.url, []byte(tc.body), []Secret{held(key)})
		wantErr(t, tc.url+tc.body+tc.signature, err, tc.want)
	}
}

// TestVectorOfAdyensBody plays the vector of the family that signs the whole body.
func TestVectorOfAdyensBody(t *testing.T) {
	secrets := []Secret{parsed(t)(ParseHexSecret(adyenVectors[0].key))}
	const signature = "NiqA5vsdV5etZMOaR27+GBSG4i6JeP6j1wkCM6t53vA="
	body := "{\n    \"type\": \"merchant.created\",\n    \"environment\": \"test\",\n    \"createdAt\": \"01-01-2024\",\n    \"data\": {\n" +
		"        \"capabilities\": {\n            \"sendToTransferInstrument\": {\n                \"requested\": true,\n" +
		"                \"requestedLevel\": \"notApplicable\"\n            }\n        },\n        \"companyId\": \"YOUR_COMPANY_ID\",\n" +
		"        \"merchantId\": \"YOUR_MERCHANT_ACCOUNT\",\n        \"status\": \"PreActive\"\n    }\n}"
	wantErr(t, "as published", VerifyAdyenBody(signature, []byte(body), secrets), nil)
	wantErr(t, "one line end more", VerifyAdyenBody(signature, []byte(body+"\n"), secrets), ErrMismatch)
	wantErr(t, "no signature", VerifyAdyenBody("", []byte(body), secrets), ErrMissing)
}

// TestAdyenFieldsAreAllSigned changes each field that is signed, and leaves one out.
func TestAdyenFieldsAreAllSigned(t *testing.T) {
	secrets := []Secret{parsed(t)(ParseHexSecret(adyenVectors[0].key))}
	for _, change := range []func(*AdyenItem){
		func(i *AdyenItem) { i.PSPReference += "0" }, func(i *AdyenItem) { i.OriginalReference = "1" },
		func(i *AdyenItem) { i.MerchantAccountCode = "" }, func(i *AdyenItem) { i.MerchantReference = "x" },
		func(i *AdyenItem) { i.Amount.Value = "113" }, func(i *AdyenItem) { i.Amount.Value = "1130.0" },
		func(i *AdyenItem) { i.Amount.Currency = "USD" }, func(i *AdyenItem) { i.EventCode = "CAPTURE" }, func(i *AdyenItem) { i.Success = "false" },
	} {
		item := adyenItem(t, adyenVectors[0].item)
		change(&item)
		wantErr(t, "a changed item", VerifyAdyen(item, secrets), ErrMismatch)
	}
	item := adyenItem(t, adyenVectors[0].item)
	item.AdditionalData.HMACSignature = ""
	wantErr(t, "no signature", VerifyAdyen(item, secrets), ErrMissing)
}

func stripeHeader(secret Secret, at time.Time, body []byte) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return "t=" + stamp + ",v1=" + hex.EncodeToString(mac(secret, []byte(stamp+"."), body)) + ",v0=" + strings.Repeat("0", 64)
}

// TestStripe: the signature was made with OpenSSL (`openssl dgst -sha256 -hmac`), not with our code; Stripe publishes the
// scheme, and no vector.
func TestStripe(t *testing.T) {
	secrets := []Secret{parsed(t)(ParseTextSecret("whsec_test_secret")), newSecret(1)}
	body, at := `{"id":"evt_test"}`, time.Unix(1492774577, 0)
	const good = "v1=22f7d74836ddad3284a2b80853dd2fe731655c1bfddcff3c3666a500cf3abd80"
	for header, want := range map[string]error{
		"t=1492774577," + good:                         nil,
		good + ",t=1492774577,v0=00":                   nil,
		"t=1492774577,v1=00,v1=é," + good:              nil,
		"t=1492774577,v0=" + good[3:]:                  ErrMismatch,
		"t=1492774577,v1=" + strings.ToUpper(good[3:]): ErrMismatch,
		"t=1492774578," + good:                         ErrMismatch,
		"t=1492774577":                                 ErrMismatch,
		good:                                           ErrMalformed,
		"t=1492774577,t=1492774577," + good:            ErrMalformed,
		"t=+1492774577," + good:                        ErrMalformed,
		"t=," + good:                                   ErrMalformed,
		"":                                             ErrMissing,
		"t=1492774577," + strings.Repeat("v1=00,", 31) + good: ErrMismatch,
	} {
		msg, err := VerifyStripe(http.Header{HeaderStripe: {header}}, []byte(body), secrets, at, 0)
		wantErr(t, header, err, want)
		if want == nil && !msg.At.Equal(at) {
			t.Errorf("%s: signed at %s", header, msg.At)
		}
	}
}
