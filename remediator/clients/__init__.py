"""The only imports of vendor SDKs. One adapter and one error table per system; ``ports`` says what they promise."""
