module github.com/hapaxpay/hapax/test

go 1.26.0

require (
	github.com/hapaxpay/hapax v0.0.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
)

replace github.com/hapaxpay/hapax => ../
