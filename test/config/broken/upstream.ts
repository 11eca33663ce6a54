import { type Broken, element, header, key, seconds } from "./file.ts";

const upstreamUrl =
  "http://host:port, https://host:port or unix:/path, without path, query and credentials";
const homeUrl = `${upstreamUrl}; or a database: postgres://, mysql://, mariadb:// or sqlite:DIRECTORY`;

const healthPath = "nothing, or / and visible ASCII characters but #";
const once = "a URL that stands nowhere else in [upstream]";

/** What `[upstream]` refuses. */
export const upstream: Broken[] = [
  ...key("upstream", "url", homeUrl, [
    '"127.0.0.1:9090"',
    '"http://127.0.0.1:9090/query"',
    '"http://127.0.0.1:9090?a=b"',
    '"http://127.0.0.1:99999"',
    '"unix:"',
    '"tcp://127.0.0.1"',
    '"postgres://"',
    '"sqlite:"',
  ]),
  {
    text: '[upstream]\nurl = "http://user:pa@ss@127.0.0.1:9090"\n',
    problem: `gateway.toml:2: upstream.url: found "http://***@127.0.0.1:9090"; allowed: ${homeUrl}`,
  },
  {
    text: '[upstream]\nauthorization = "Bearer hunter2\\n"\n',
    problem:
      "gateway.toml:2: upstream.authorization: found a value that is not shown, as it is a secret; allowed: a header value of visible ASCII characters",
  },
  {
    text: '[upstream]\nauthorization = "Bearer hunter2"\nauthorization_file = "secret"\n',
    problem:
      'gateway.toml:3: upstream.authorization_file: found "secret"; allowed: either authorization or authorization_file, not both',
  },
  {
    text: '[upstream]\nauthorization_file = "missing"\n',
    problem:
      'gateway.toml:2: upstream.authorization_file: found "missing"; allowed: a file that can be read (ENOENT)',
  },
  {
    text: '[upstream]\nauthorization_file = "."\n',
    problem: 'gateway.toml:2: upstream.authorization_file: found "."; allowed: a regular file',
  },
  ...key("upstream", "forward_authorization", "true or false", ["0"]),
  ...element("upstream", "forward_headers", "X-Tenant", header, [
    '"Connection"',
    '"TE"',
    '"Authorization"',
    '"cookie"',
    '"Host"',
    '"Content-Length"',
    '"X-Gatehouse-User"',
    '"x_gatehouse_role"',
    '"X-Forwarded-For"',
    '"X-Request-Id"',
    '"a b"',
    '""',
  ]),
  ...key("upstream", "connections", "a whole number from 1 to 10000", ["0", "10001"]),
  ...key("upstream", "connect_timeout", seconds, ["0"]),
  ...key("upstream", "response_timeout", seconds, ["86401"]),
  ...key("upstream", "query_form", '"keyed", "op"', ['"Op"']),
  ...key("upstream", "health_path", healthPath, ['"healthz"', '"/a b"', '"/a#b"', '"/é"']),
  ...key("upstream", "health_interval", seconds, ["0"]),
  {
    text: '[upstream]\nquery_form = "op"\n',
    problem:
      'gateway.toml:2: upstream.query_form: found "op"; allowed: "keyed", as the engine that the gateway starts wants it',
  },
  {
    text: '[upstream]\nurls = ["postgres://app:hunter2@db/shop"]\n',
    problem: `gateway.toml:2: upstream.urls[0]: found "postgres://***@db/shop"; allowed: ${upstreamUrl}`,
  },
  {
    text: '[upstream]\nurl = "http://a:1"\nstatement_timeout = 5\n',
    problem:
      "gateway.toml:3: upstream.statement_timeout: found 5; allowed: nothing, unless the gateway starts the engine itself",
  },
  {
    text: '[upstream]\nurl = "sqlite:shop"\npool_size = 5\n',
    problem:
      "gateway.toml:3: upstream.pool_size: found 5; allowed: nothing, unless url is that of a database server",
  },
  {
    text: '[upstream]\nurl = "mysql://app@db/"\npostgres_databases = "schemas"\n',
    problem:
      'gateway.toml:3: upstream.postgres_databases: found "schemas"; allowed: nothing, unless url is that of PostgreSQL',
  },
  {
    text: '[upstream]\nurl = "mysql://app@db/"\npool_size = 1001\n',
    problem:
      "gateway.toml:3: upstream.pool_size: found 1001; allowed: a whole number from 1 to 1000",
  },
  {
    text: '[upstream]\nurls = ["127.0.0.1:9090"]\n',
    problem: `gateway.toml:2: upstream.urls[0]: found "127.0.0.1:9090"; allowed: ${upstreamUrl}`,
  },
  {
    text: '[upstream]\nurl = "http://a:1"\nurls = ["http://b:1"]\n',
    problem: "gateway.toml:3: upstream.urls: found an array; allowed: either url or urls, not both",
  },
  {
    text: '[upstream]\nurls = ["http://a:1", "http://A:1/"]\n',
    problem: `gateway.toml:2: upstream.urls[1]: found "http://A:1/"; allowed: ${once}`,
  },
  {
    text: '[upstream]\nurl = "http://a:1"\n[[upstream.databases]]\ndatabases = ["x"]\nurl = "http://a:1"\n',
    problem: `gateway.toml:5: upstream.databases[0].url: found "http://a:1"; allowed: ${once}`,
  },
  {
    text: '[[upstream.databases]]\ndatabases = ["x"]\n',
    problem:
      "gateway.toml:1: upstream.databases[0].url: found nothing; allowed: either url or urls",
  },
  {
    text: '[[upstream.databases]]\ndatabases = ["x"]\nurl = "http://a:1"\nurls = ["http://b:1"]\n',
    problem:
      "gateway.toml:4: upstream.databases[0].urls: found an array; allowed: either url or urls, not both",
  },
  {
    text: '[[upstream.databases]]\ndatabases = ["x", "X"]\nurl = "http://a:1"\n',
    problem:
      'gateway.toml:2: upstream.databases[0].databases[1]: found "X"; allowed: each database once, whatever its case',
  },
  {
    text: '[[upstream.databases]]\ndatabases = ["a/b"]\nurl = "http://a:1"\n',
    problem:
      'gateway.toml:2: upstream.databases[0].databases[0]: found "a/b"; allowed: 1 to 63 letters, digits, - and _',
  },
];
