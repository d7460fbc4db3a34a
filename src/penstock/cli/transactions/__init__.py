"""`penstock transactions`: list, describe, find hanging ones, abort."""
