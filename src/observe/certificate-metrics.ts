import { Gauge, type Registry } from "prom-client";

/** What is told of the certificate that TLS is spoken with. */
export interface CertificateMetrics {
  /** One was put in force. */
  onLoad(certificate: { readonly expires: Date }): void;
  /** The files could not be used. */
  onFailure(): void;
}

export function registerCertificate(register: Registry): CertificateMetrics {
  const registers = [register];
  const expiry = new Gauge({
    name: "gatehouse_tls_certificate_expiry_seconds",
    help: "When the TLS certificate in force expires, in seconds since 1970",
    aggregator: "min",
    registers,
  });
  const isGood = new Gauge({
    name: "gatehouse_tls_certificate_last_reload_successful",
    help: "1 if the TLS certificate on disk is the one in force, 0 if the last good one is kept",
    aggregator: "min",
    registers,
  });
  return {
    onLoad({ expires }) {
      expiry.set(expires.getTime() / 1000);
      isGood.set(1);
    },
    onFailure() {
      isGood.set(0);
    },
  };
}
