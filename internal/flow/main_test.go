package flow_test

import (
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
