"""Importers and exporters: YARG's score file, tables (CSV, JSONL, Parquet), Redis sorted sets."""
