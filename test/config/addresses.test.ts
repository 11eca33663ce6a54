import t from "tap";
import { parseListenAddress } from "../../src/config/addresses.ts";
import { load } from "./support.ts";

t.test("a listen address is split into host and port", (t) => {
  t.strictSame(parseListenAddress("127.0.0.1:9464"), { host: "127.0.0.1", port: 9464 });
  t.strictSame(parseListenAddress("[::1]:0"), { host: "::1", port: 0 });
  t.strictSame(parseListenAddress("metrics.local:80"), { host: "metrics.local", port: 80 });
  t.equal(parseListenAddress("::1:80"), undefined);
  t.equal(parseListenAddress("host:80:80"), undefined);
  t.end();
});

t.test("every usual spelling of an address, URL or origin is accepted", (t) => {
  const text = `
[server]
host = "gate-1.example.com"
trusted_proxies = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "0.0.0.0/0"]
allowed_origins = ["https://app.example.com", "http://[::1]:3000", "http://localhost:5173", "capacitor://localhost"]
public_url = "http://[2001:db8::1]:8080"
[upstream]
url = "http://[::1]:9090"
forward_headers = ["X-Tenant", "Idempotency-Key"]
[metrics]
listen = "0.0.0.0:9464"
[query]
extra_fields = ["hint", "timeout_ms"]
operations = { Truncate = "DELETE", Explain2 = "SELECT" }
[[routes]]
path = "/db/:database/stats.json"
access = "SELECT"
[[routes]]
path = "/db/:database/stats.json"
methods = ["POST"]
access = "administrator"
[[routes]]
path = "/backup"
methods = ["HEAD", "GET"]
access = "CREATE DATABASE"
database_header = "X-Database"
`;
  const { configuration } = load(t, text);
  t.equal(configuration.upstream.url, "http://[::1]:9090");
  t.equal(configuration.routes.length, 3);
  t.strictSame(configuration.routes[0]?.methods, ["GET"]);
  t.end();
});
