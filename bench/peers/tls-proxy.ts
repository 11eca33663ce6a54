/** Reverse proxies that terminate TLS for a gateway. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Certificate } from "../../test/kit/certificate.ts";
import { freePort } from "../../test/kit/free-port.ts";
import { Program } from "../rig/program.ts";
import { GATEWAY_CORE, type System } from "./system.ts";
import type { World } from "./world.ts";

type Proxy = "nginx" | "HAProxy";

interface Places {
  readonly directory: string;
  readonly port: number;
  /** Of the gateway. */
  readonly behind: number;
  /** A PEM file with certificate and key. */
  readonly pem: string;
}

function nginxConfiguration({ directory, port, behind, pem }: Places): string {
  return `daemon off; master_process off; pid ${directory}/nginx-tls.pid; error_log stderr crit;
    events { worker_connections 10000; }
    http {
      access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
      client_max_body_size 0; client_body_temp_path ${directory}/nginx-tls;
      upstream gateway { server 127.0.0.1:${behind}; keepalive 64; keepalive_requests 1000000000; }
      server {
        listen 127.0.0.1:${port} ssl;
        ssl_certificate ${pem}; ssl_certificate_key ${pem}; ssl_protocols TLSv1.2 TLSv1.3;
        location / { proxy_pass http://gateway; proxy_http_version 1.1; proxy_set_header Connection ""; }
      }
    }`;
}

function haproxyConfiguration({ port, behind, pem }: Places): string {
  return `global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend tls
  bind 127.0.0.1:${port} ssl crt ${pem} ssl-min-ver TLSv1.2
  default_backend gateway
backend gateway
  server one 127.0.0.1:${behind}
`;
}

const proxies: Record<Proxy, { write: (places: Places) => string; command: readonly string[] }> = {
  nginx: { write: nginxConfiguration, command: ["nginx", "-e", "stderr", "-c"] },
  HAProxy: { write: haproxyConfiguration, command: ["haproxy", "-db", "-f"] },
};

/** Starts a proxy on the core of the gateway; both count towards the cost of a request. */
export async function startTlsProxy(
  proxy: Proxy,
  gateway: System,
  { directory }: World,
  certificate: Certificate,
): Promise<System> {
  const port = await freePort();
  const pem = path.join(directory, "proxy.pem");
  writeFileSync(pem, certificate.cert + certificate.key, { mode: 0o600 });
  const file = path.join(directory, `${proxy}-tls.conf`);
  const { write, command } = proxies[proxy];
  writeFileSync(file, write({ directory, port, behind: gateway.port, pem }));
  const [program = "", ...flags] = command;
  const own = new Program(program, [...flags, file], GATEWAY_CORE);
  await own.listening(port);
  return {
    ...gateway,
    name: `${proxy} for TLS, Gatehouse behind`,
    port,
    scheme: "https",
    program: {
      cpuSeconds: () => own.cpuSeconds() + gateway.program.cpuSeconds(),
      stop: () => own.stop(),
    },
  };
}
