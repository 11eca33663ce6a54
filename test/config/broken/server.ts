import { type Broken, element, key, seconds } from "./file.ts";

const port = "a whole number from 0 to 65535";
const host = "a host name or an IP address";
const publicUrl =
  "an http:// or https:// URL without path, query and credentials, or an empty string";
const proxy = "an IP address or a network such as 10.0.0.0/8";
const origin = "an exact origin such as https://app.example.com, in lower case, without path and *";

/** What `[server]` refuses. */
export const server: Broken[] = [
  ...key("server", "host", host, ['""', '"[::1]"', '"a b"', '"10.0.0"', '"fe80::1%eth0"', "5"]),
  ...key("server", "port", port, ['"eighty"', "-1", "65536", "80.5", "true", "nan"]),
  ...key("server", "workers", "a whole number from 0 to 64", ["-1", '"auto"', "1.5"]),
  {
    text: "[server]\nworkers = 65\nmax_body_bytes = 1000\n",
    problem: "gateway.toml:2: server.workers: found 65; allowed: a whole number from 0 to 64",
  },
  {
    text: "[server]\nworkers = 64\n",
    problem:
      "gateway.toml:1: server.max_buffered_bytes: found 268435456; allowed: at least max_body_bytes for each of 64 workers, which is 671088640",
  },
  {
    text: "[server]\nworkers = 8\n[upstream]\nconnections = 7\n",
    problem:
      "gateway.toml:4: upstream.connections: found 7; allowed: at least one for each of server.workers, which is 8",
  },
  ...key("server", "public_url", publicUrl, [
    '"gate.example.com"',
    '"https://gate.example.com/x"',
    '"https://gate.example.com?x"',
    '"https://gate.example.com#x"',
    '"ftp://gate.example.com"',
    '"https:\\\\gate"',
  ]),
  ...key("server", "max_body_bytes", "a whole number from 1 to 1073741824", ["0", "1.5"]),
  {
    text: "[server]\nmax_body_bytes = 1073741825\nmax_buffered_bytes = 1073741825\n",
    problem:
      "gateway.toml:2: server.max_body_bytes: found 1073741825; allowed: a whole number from 1 to 1073741824",
  },
  ...key("server", "max_buffered_bytes", "a whole number from 1 to 1099511627776", ['"many"']),
  {
    text: "[server]\nmax_body_bytes = 100\nmax_buffered_bytes = 99\n",
    problem:
      "gateway.toml:3: server.max_buffered_bytes: found 99; allowed: at least max_body_bytes, which is 100",
  },
  {
    text: "[server]\nmax_body_bytes = 1073741824\n",
    problem:
      "gateway.toml:1: server.max_buffered_bytes: found 268435456; allowed: at least max_body_bytes, which is 1073741824",
  },
  ...key("server", "request_timeout", seconds, ["0", "86401", "0.5"]),
  ...key("server", "shutdown_delay", "a whole number from 0 to 3600", ["-1", "3601"]),
  ...key("server", "shutdown_grace", seconds, ["0", "86401"]),
  ...element("server", "trusted_proxies", "10.0.0.0/8", proxy, [
    '"10.0.0.0/33"',
    '"10.0.0.0/"',
    '"10.0.0.0/8/8"',
    '"10.1"',
    '"proxy.example.com"',
    '"::1%lo"',
    '"::/129"',
    "7",
  ]),
  {
    text: '[server]\ntrusted_proxies = "10.0.0.0/8"\n',
    problem: `gateway.toml:2: server.trusted_proxies: found "10.0.0.0/8"; allowed: an array of (${proxy})`,
  },
  ...key("server.tls", "certificate", "a path", ["5"]),
  ...key("server.tls", "key", "a path", ["true"]),
  {
    text: '[server.tls]\ncertificate = "fullchain.pem"\n',
    problem:
      "gateway.toml:1: server.tls.key: found nothing; allowed: a path, since certificate and key go together",
  },
  ...element("server", "allowed_origins", "http://localhost:3000", origin, [
    '"*"',
    '"https://*.example.com"',
    '"https://app.example.com/"',
    '"https://App.example.com"',
    '"https://app.example.com:443"',
    '"app.example.com"',
    '"null"',
    '"file://"',
  ]),
];
