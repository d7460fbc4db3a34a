"""The command line. Every command but `up`, `broker` and `log` is a Kafka client of any cluster."""
