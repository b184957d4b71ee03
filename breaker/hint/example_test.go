package hint_test

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
)

func ExampleParse() {
	refused := http.Header{}
	refused.Set("Date", "Sat, 21 Nov 2026 12:00:00 GMT")
	refused.Set("X-RateLimit-Limit", "60")
	refused.Set("X-RateLimit-Remaining", "0")
	refused.Set("X-RateLimit-Reset", "1795262415")
	h := hint.Parse(refused, true, time.Now())
	fmt.Printf("wait %s, says %s\n", h.Wait, h.Dialect)

	accepted := http.Header{}
	accepted.Set("RateLimit-Policy", `"default";q=100;w=60`)
	accepted.Set("RateLimit", `"default";r=7;t=40`)
	h = hint.Parse(accepted, false, time.Now())
	fmt.Printf("%d of %d calls left for %s\n", h.Budget.Remaining, h.Budget.Limit, h.Budget.Reset)
	// Output:
	// wait 16s, says x-ratelimit
	// 7 of 100 calls left for 40s
}

// Shopify tells how full its bucket is, which leaks two calls a second.
var shopify = hint.Dialect{Name: "shopify", Read: func(a hint.Answer) hint.Hint {
	var used, size int
	if _, err := fmt.Sscanf(a.Header.Get("X-Shopify-Shop-Api-Call-Limit"), "%d/%d", &used, &size); err != nil {
		return hint.Hint{}
	}
	return hint.Hint{Budget: &hint.Budget{
		Remaining: size - used, Limit: size,
		Reset: time.Duration(used) * time.Second / 2, // until it is empty
	}}
}}

// An API with headers of its own is one more dialect, before or behind the known ones.
func ExampleDialect() {
	header := http.Header{}
	header.Set("X-Shopify-Shop-Api-Call-Limit", "38/40")
	h := hint.Parse(header, false, time.Now(), append(slices.Clone(hint.Default), shopify)...)
	fmt.Println(h.Budget.Remaining, "of", h.Budget.Limit, "calls left, all of them in", h.Budget.Reset)

	header = http.Header{}
	header.Set("X-Shopify-Shop-Api-Call-Limit", "40/40")
	header.Set("Retry-After", "2.0")
	h = hint.Parse(header, true, time.Now(), append(slices.Clone(hint.Default), shopify)...)
	fmt.Println("wait", h.Wait, "with", h.Budget.Remaining, "calls left")
	// Output:
	// 2 of 40 calls left, all of them in 19s
	// wait 2s with 0 calls left
}
