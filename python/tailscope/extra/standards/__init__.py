"""Tests of standards: RFC 2544, RFC 8219, ETSI GS NFV-TST 009, and MLRsearch (RFC 9971)."""
