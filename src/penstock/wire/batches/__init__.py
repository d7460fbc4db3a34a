"""Record batches and the records in them: headers, checks, compression."""
