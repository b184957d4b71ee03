// Package lab is the room of the product without the world: the simulator plays the real rules of the breaker in virtual
// time, and the fake API answers over HTTP as a rate-limited one does.
package lab
