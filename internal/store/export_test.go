package store

// TrimAt is TrimEvents with bounds of its own.
var TrimAt = trim
