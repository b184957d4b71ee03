package breaker

import "testing"

// A program that got its permit through the API is believed about the destination, too, when its call is the one that
// decides: else nothing ends the doubt.
func TestHandedPermitIsConfinedOnlyIfItWas(t *testing.T) {
	c := &core{id: "a"}
	for word, held := range holdWords {
		for _, confined := range []bool{false, true} {
			text, err := Permit{c: c, id: 1, holds: held, confined: confined}.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			got, err := (&Breaker{core: c}).Permit(text)
			if err != nil {
				t.Fatal(err)
			}
			if got.holds != held || got.confined != confined {
				t.Errorf("%s: holds %#x, confined %v; want %#x, %v", word, got.holds, got.confined, held, confined)
			}
		}
	}
}
