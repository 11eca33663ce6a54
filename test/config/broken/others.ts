import { type Broken, key } from "./file.ts";

/** What the smaller sections refuse, and files that are wrong as a whole. */
export const others: Broken[] = [
  ...key("metrics", "listen", "host:port, an IPv6 host in brackets", [
    '"9464"',
    '"127.0.0.1"',
    '"::1:9464"',
    '"[127.0.0.1]:9464"',
    '"127.0.0.1:65536"',
    '":9464"',
  ]),
  ...key("audit", "file", "a path", ['""', "1"]),
  ...key("console", "listen", "host:port, an IPv6 host in brackets", ['"8081"', '"127.0.0.1"']),
  ...key(
    "console",
    "listen",
    "a loopback address, or console.public_url with https://, since passwords go over it",
    ['"0.0.0.0:8081"', '"console.example.com:8081"', '"[::]:8081"'],
  ),
  ...key(
    "console",
    "public_url",
    "an http:// or https:// URL without path, query and credentials, or an empty string",
    ['"console.example.com"', '"https://console.example.com/x"'],
  ),
  ...key(
    "console",
    "public_url",
    "an https:// URL, or one of a loopback address, since passwords go over it",
    ['"http://console.example.com"', '"http://10.0.0.1:8081"'],
  ),
  {
    text: '[server]\npublic_url = "https://gate.example.com"\n[console]\npublic_url = "https://gate.example.com"\n',
    problem:
      'gateway.toml:4: console.public_url: found "https://gate.example.com"; allowed: another origin than server.public_url',
  },
  {
    text: '[server]\nport = 9464\n[metrics]\nlisten = "127.0.0.1:9464"\n',
    problem:
      'gateway.toml:4: metrics.listen: found "127.0.0.1:9464"; allowed: another port than server.port',
  },
  {
    text: '[console]\nlisten = "127.0.0.1:9464"\n[metrics]\nlisten = "0.0.0.0:9464"\n',
    problem:
      'gateway.toml:4: metrics.listen: found "0.0.0.0:9464"; allowed: another port than console.listen',
  },
  ...key("approvals", "wait", "a whole number from 1 to 86400", [
    "0",
    "-1",
    "86401",
    "1.5",
    '"10m"',
  ]),
  ...key("approvals", "keep", "a whole number from 0 to 3650", ["-1", "3651", "0.5", '"30d"']),
  {
    text: "[server]\nprot = 8080\n",
    problem:
      "gateway.toml:2: server.prot: found prot; allowed: host, port, workers, public_url, max_body_bytes, max_buffered_bytes, request_timeout, shutdown_delay, shutdown_grace, trusted_proxies, allowed_origins, tls (did you mean port?)",
  },
  {
    text: "\n[sever]\nport = 8080\n",
    problem:
      "gateway.toml:2: sever: found sever; allowed: server, auth, upstream, query, routes, metrics, audit, mcp, store, console, approvals (did you mean server?)",
  },
  {
    text: '[mcp]\n"odd\\u001b key" = 1\n',
    problem:
      'gateway.toml:2: mcp."odd\\u001b key": found "odd\\u001b key"; allowed: enabled, upstream, authorization, authorization_file, max_body_bytes, row_limit, result_bytes, app_schemes, registrations_per_hour, private_client_hosts, tools, authorization_servers, clients',
  },
  {
    text: 'upstream = "Bearer hunter2"\n',
    problem: "gateway.toml:1: upstream: found a string; allowed: a table",
  },
  {
    text: "mcp = 1979-05-27\n",
    problem: "gateway.toml:1: mcp: found a date; allowed: a table",
  },
  {
    text: "[server]\nhost = 1979-05-27\n",
    problem: "gateway.toml:2: server.host: found 1979-05-27; allowed: a host name or an IP address",
  },
  {
    text: '[server]\n"__proto__" = { port = 1 }\n',
    problem:
      "gateway.toml:2: server.__proto__: found __proto__; allowed: host, port, workers, public_url, max_body_bytes, max_buffered_bytes, request_timeout, shutdown_delay, shutdown_grace, trusted_proxies, allowed_origins, tls",
  },
  {
    text: "constructor = 1\n",
    problem:
      "gateway.toml:1: constructor: found constructor; allowed: server, auth, upstream, query, routes, metrics, audit, mcp, store, console, approvals",
  },
  {
    text: '[[upstream]]\nauthorization = "Bearer hunter2"\n',
    problem:
      "gateway.toml:1: upstream: found an array; allowed: a table (did you mean [upstream]?)",
  },
  {
    text: "[server]\nport = 1\nport = 2\n",
    problem: "gateway.toml:3: trying to redefine an already defined table or value",
  },
  {
    text: '[upstream]\nauthorization = "Bearer hunter2\n',
    problem:
      "gateway.toml:2: control characters are not allowed in strings: is its closing quote missing?",
  },
];
