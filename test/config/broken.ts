interface Broken {
  text: string;
  problem: string;
}

/** One key of a section, each value with what the message says was found. */
function key(section: string, name: string, allowed: string, values: string[]): Broken[] {
  return values.map((value) => ({
    text: `[${section}]\n${name} = ${value}\n`,
    problem: `gateway.toml:2: ${section}.${name}: found ${value}; allowed: ${allowed}`,
  }));
}

/** The same for the elements of an array, whose first one is fine. */
function element(section: string, name: string, good: string, allowed: string, values: string[]) {
  return values.map((value) => ({
    text: `[${section}]\n${name} = [\n  "${good}",\n  ${value},\n]\n`,
    problem: `gateway.toml:2: ${section}.${name}[1]: found ${value}; allowed: ${allowed}`,
  }));
}

/** Words of kinds that several keys share. */
const seconds = "a whole number from 1 to 86400";
const header =
  "a header name that is not hop-by-hop, no credential, and not set by the gateway itself";

const failures = "a whole number from 1 to 1000000";
const databaseName = "1 to 63 ASCII letters, digits, _ and -";

/** What was found is cut to 64 characters. */
function shortened({ text, problem }: Broken): Broken {
  return { text, problem: problem.replace(/(?<=found ".{62}).{2,}(?=; allowed)/, "…") };
}

export const auth: Broken[] = [
  ...key("auth", "insecure_allow_remote", "true or false", ["0"]),
  ...key("auth", "refuse_common_passwords", "true or false", ['"some"']),
  ...key("auth", "check_permissions", "true or false", ['"yes"', "1"]),
  ...key("auth", "token_expiration", "a whole number from 1 to 31622400", ["0", "31622401"]),
  ...key("auth", "signing_algorithm", '"ES256", "EdDSA", "RS256", "HS256"', ['"none"', '"es256"']),
  ...key("auth", "argon2_time_cost", "a whole number from 1 to 64", ["0", "65"]),
  ...key("auth", "argon2_parallelism", "a whole number from 1 to 64", ["0", "65"]),
  ...key("auth", "argon2_memory_cost", "a whole number from 8 to 1048576", ["1048577"]),
  {
    text: "[auth]\nargon2_memory_cost = 31\n",
    problem:
      "gateway.toml:2: auth.argon2_memory_cost: found 31; allowed: at least 8 * argon2_parallelism, which is 32",
  },
  ...key("auth", "access_control_file", "a path", ['""', "false"]),
  ...key("auth", "revocations_file", "a path", ['"a\\u0000b"']),
  ...key("auth", "default_database", databaseName, [
    '"*"',
    '"a.b"',
    '""',
    `"${"d".repeat(62)}é"`,
  ]).map(shortened),
  ...key("auth", "issuer", "1 to 255 visible ASCII characters", ['""', '"a b"', '"é"']),
  ...key("auth", "max_failures_per_user_and_address", failures, ["0", "1000001"]),
  ...key("auth", "max_failures_per_address", failures, ["0"]),
  ...key("auth", "failure_window", seconds, ["0"]),
  {
    text: '[server]\nhost = "0.0.0.0"\n[auth]\nenabled = false\n',
    problem:
      'gateway.toml:4: auth.enabled: found false; allowed: true, since other machines can reach server.host "0.0.0.0"; ' +
      'to go without authentication set server.host = "127.0.0.1", or accept the risk with auth.insecure_allow_remote = true',
  },
];

const rights =
  '"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "CREATE DATABASE", "DROP DATABASE", "GRANT"';
const name = "1 to 63 letters, digits, - and _";
const visible = "1 to 128 visible ASCII characters";
const issuer = "an https:// URL without query and fragment, or http:// on loopback";
const uris = "https:// URLs, http:// on loopback, or app.scheme:/path, without fragment";
const redirect = `a non-empty array of (${uris})`;
const scheme = "a scheme in lower case that no browser has a use for";
const documentHost = "a host of https URLs, or host:port, in lower case and without *";

/** An element of an array of tables with one key wrong. */
function mcpElement(
  table: string,
  keys: Record<string, string>,
  wrong: string,
  value: string,
): string {
  const lines = Object.entries({ ...keys, [wrong]: value }).map(
    ([key, written]) => `${key} = ${written}`,
  );
  return `[[mcp.${table}]]\n${lines.join("\n")}\n`;
}

/** One broken file for each value of a key of such an element. */
function inElement(
  table: string,
  keys: Record<string, string>,
  wrong: string,
  allowed: string,
  values: string[],
): Broken[] {
  const place = Object.keys({ ...keys, [wrong]: "" }).indexOf(wrong) + 2;
  return values.map((value) => ({
    text: mcpElement(table, keys, wrong, value),
    problem: `gateway.toml:${place}: mcp.${table}[0].${wrong}: found ${value}; allowed: ${allowed}`,
  }));
}

const tool = { name: '"run"', permission: '"SELECT"', database: '"main"' };
const mcpServer = { issuer: '"https://id.example.com"', prefix: '"staff"' };
const client = {
  client_id: '"desktop"',
  client_name: '"Desktop"',
  redirect_uris: '["http://127.0.0.1/callback"]',
};

export const mcp: Broken[] = [
  ...key("mcp", "enabled", "true or false", ['"true"']),
  ...key("mcp", "upstream", "http://host[:port]/path", [
    ...'"127.0.0.1:9200" "unix:/run/mcp.sock" "http://a/mcp?x=1" "http://u:p@a/mcp"'
      .split(" ")
      .slice(0, 3),
  ]),
  {
    text: '[mcp]\nauthorization = "Bearer hunter2\\n"\n',
    problem:
      "gateway.toml:2: mcp.authorization: found a value that is not shown, as it is a secret; allowed: a header value of visible ASCII characters",
  },
  {
    text: '[mcp]\nauthorization = "Bearer hunter2"\nauthorization_file = "secret"\n',
    problem:
      'gateway.toml:3: mcp.authorization_file: found "secret"; allowed: either authorization or authorization_file, not both',
  },
  {
    text: '[mcp]\nauthorization_file = "missing"\n',
    problem:
      'gateway.toml:2: mcp.authorization_file: found "missing"; allowed: a file that can be read (ENOENT)',
  },
  ...key("mcp", "max_body_bytes", "a whole number from 1024 to 1073741824", ["1023", "1073741825"]),
  ...key("mcp", "result_bytes", "a whole number from 16384 to 16777216", ["16383", "16777217"]),
  ...key("mcp", "row_limit", "a whole number from 1 to 100000", ["0", "100001", '"10"']),
  ...element("mcp", "app_schemes", "cursor", scheme, [
    '"javascript"',
    '"data"',
    '"Cursor"',
    '"vscode:"',
    '""',
  ]),
  ...key("mcp", "registrations_per_hour", "a whole number from 1 to 1000000", ["0", "1.5"]),
  ...element("mcp", "private_client_hosts", "localhost:8443", documentHost, [
    '"https://apps.corp.example"',
    '"apps.corp.example/"',
    '"*.corp.example"',
    '"apps.corp.example:443"',
    '"user@apps.corp.example"',
  ]),
  {
    text: "[mcp]\ntools = 1\n",
    problem: "gateway.toml:2: mcp.tools: found 1; allowed: an array of tables",
  },
  {
    text: "[mcp]\nauthorization_servers = 1\n",
    problem: "gateway.toml:2: mcp.authorization_servers: found 1; allowed: an array of tables",
  },
  {
    text: "[mcp]\nclients = 1\n",
    problem: "gateway.toml:2: mcp.clients: found 1; allowed: an array of tables",
  },
  ...inElement("tools", tool, "name", visible, ['""', '"a b"']),
  ...inElement("tools", tool, "permission", rights, ['"select"']),
  ...inElement("tools", tool, "database", name, ['"*"', '"a.b"']),
  ...inElement("tools", { name: '"run"', permission: '"SELECT"' }, "database_argument", visible, [
    '""',
  ]),
  ...inElement("authorization_servers", mcpServer, "issuer", issuer, [
    '"id.example.com"',
    '"http://id.example.com"',
    '"https://id.example.com/?a"',
  ]),
  ...inElement("authorization_servers", mcpServer, "prefix", name, ['""', '"a:b"']),
  ...inElement("authorization_servers", mcpServer, "username_claim", "the name of a claim", ['""']),
  ...inElement(
    "authorization_servers",
    mcpServer,
    "audience",
    "1 to 255 visible ASCII characters",
    ['""', '"a b"'],
  ),
  ...inElement("clients", client, "client_id", visible, ['""']),
  ...inElement("clients", client, "client_name", "1 to 100 characters", ['""']),
  {
    text: mcpElement("clients", client, "redirect_uris", "[]"),
    problem: `gateway.toml:4: mcp.clients[0].redirect_uris: found an array; allowed: ${redirect}`,
  },
  {
    text: mcpElement("clients", client, "redirect_uris", '["http://example.com/"]'),
    problem: `gateway.toml:4: mcp.clients[0].redirect_uris[0]: found "http://example.com/"; allowed: ${uris}`,
  },
  ...["javascript:/x", "myapp:opaque", "com.example.app:/x#y"].map((uri) => ({
    text: mcpElement("clients", client, "redirect_uris", `["${uri}"]`),
    problem: `gateway.toml:4: mcp.clients[0].redirect_uris[0]: found "${uri}"; allowed: ${uris}`,
  })),
  {
    text: `${mcpElement("tools", tool, "database", '"main"')}${mcpElement("tools", tool, "database", '"main"')}`,
    problem:
      'gateway.toml:6: mcp.tools[1].name: found "run"; allowed: a value that no other one has',
  },
];

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

const fieldName = "1 to 63 ASCII letters, digits and _, not a name of the query grammar";
const operationName = "a letter and up to 62 letters and digits, not a name of the query grammar";

export const query: Broken[] = [
  {
    text: '[query]\nlevel = "half"\n',
    problem: 'gateway.toml:2: query.level: found "half"; allowed: "core", "full"',
  },
  ...element("query", "extra_fields", "hint", fieldName, [
    '"database"',
    '"Order_By"',
    '"orderby"',
    '"op"',
    '"Select"',
    '"a-b"',
    '""',
    '"__proto__"',
  ]),
  {
    text: '[query]\nextra_fields = ["hint", "HINT"]\n',
    problem:
      'gateway.toml:2: query.extra_fields[1]: found "HINT"; allowed: each name once, and hint is already there',
  },
  ...["Select", "Batch", "batch", "op", "1st", "constructor", "With_Line"].map((name) => ({
    text: `[query.operations]\nTruncate = "DELETE"\n${name} = "SELECT"\n`,
    problem: `gateway.toml:3: query.operations.${name}: found ${name}; allowed: ${operationName}`,
  })),
  {
    text: '[query.operations]\nTruncate = "DELETE"\ntruncate = "DROP"\n',
    problem:
      'gateway.toml:3: query.operations.truncate: found "DROP"; allowed: each name once, and Truncate is already there',
  },
  {
    text: '[query]\noperations = { Truncate = "GRANT" }\n',
    problem:
      'gateway.toml:2: query.operations.Truncate: found "GRANT"; allowed: "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"',
  },
];

const routePath =
  "/ and segments of letters, digits, -, ., _, ~ or :name, not under a path of the gateway's own";
const access =
  '"public", "authenticated", "administrator", "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "CREATE DATABASE", "DROP DATABASE", "GRANT"';
const methods = '"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"';
const databaseRight = "a right on a database, which :database in the path or database_header names";

const routePaths = [
  ...['""', '"/"', '"stats"', '"/a/"', '"/a//b"', '"/a/./b"', '"/a/../b"', '"/a;b"', '"/a\\\\b"'],
  ...['"/a%62"', '"/a b"', '"/a?b"', '"/:any"', '"/a/:"', '"/a/x:y"', '"/a/:b/:b"', '"/a/*"'],
  ...'"/login" "/LOGIN" "/query" "/mcp" "/api/stats" "/.well-known/x" "/oauth/x"'.split(" "),
  ...['"/healthz"', '"/readyz"', '"/logout"'],
];

function route(path: string, rest = 'access = "public"'): string {
  return `[[routes]]\npath = ${path}\n${rest}\n`;
}

export const routes: Broken[] = [
  ...routePaths.map((path) => ({
    text: route(path),
    problem: `gateway.toml:2: routes[0].path: found ${path}; allowed: ${routePath}`,
  })),
  {
    text: `${route('"/a"')}${route('"/b"', "")}`,
    problem: `gateway.toml:4: routes[1].access: found nothing; allowed: ${access}`,
  },
  {
    text: route('"/a"', 'access = "select"'),
    problem: `gateway.toml:3: routes[0].access: found "select"; allowed: ${access}`,
  },
  {
    text: route('"/a"', 'access = "SELECT"'),
    problem: `gateway.toml:3: routes[0].access: found "SELECT"; allowed: ${databaseRight}`,
  },
  {
    text: route('"/a/:database"', 'access = "SELECT"\ndatabase_header = "X-Database"'),
    problem: `gateway.toml:3: routes[0].access: found "SELECT"; allowed: ${databaseRight}, and not both`,
  },
  ...['"CONNECT"', '"TRACE"', '"get"'].map((method) => ({
    text: route('"/a"', `access = "public"\nmethods = ["POST", ${method}]`),
    problem: `gateway.toml:4: routes[0].methods[1]: found ${method}; allowed: ${methods}`,
  })),
  {
    text: route('"/a"', 'access = "public"\nmethods = []'),
    problem: `gateway.toml:4: routes[0].methods: found an array; allowed: a non-empty array of (${methods})`,
  },
  {
    text: route('"/a"', 'access = "public"\ndatabase_header = "Cookie"'),
    problem: `gateway.toml:4: routes[0].database_header: found "Cookie"; allowed: ${header}`,
  },
  {
    text: route('"/a"', 'access = "public"\nmethods = ["POST"]\nupgrade = true'),
    problem:
      "gateway.toml:5: routes[0].upgrade: found true; allowed: true only where GET is one of the methods",
  },
  {
    text: route('"/a"', 'access = "public"\nupgrade_idle_timeout = 0'),
    problem:
      "gateway.toml:4: routes[0].upgrade_idle_timeout: found 0; allowed: a whole number from 1 to 86400",
  },
  {
    text: `${route('"/a/:x"')}${route('"/a/:y"', 'access = "public"\nmethods = ["POST", "GET"]')}`,
    problem:
      'gateway.toml:5: routes[1].path: found "/a/:y"; allowed: each path and method once, and GET /a/: is already there',
  },
  {
    text: '[routes]\npath = "/a"\n',
    problem:
      "gateway.toml:1: routes: found a table; allowed: an array of tables (did you mean [[routes]]?)",
  },
];

const port = "a whole number from 0 to 65535";
const host = "a host name or an IP address";
const publicUrl =
  "an http:// or https:// URL without path, query and credentials, or an empty string";
const proxy = "an IP address or a network such as 10.0.0.0/8";
const origin = "an exact origin such as https://app.example.com, in lower case, without path and *";

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

const isSecret = "a value that is not shown, as it is a secret";

export const store: Broken[] = [
  ...['""', "1", '"mysql://gatehouse@db/gatehouse"', '"postgres:"', '"http://db:5432"'].map(
    (url) => ({
      text: `[store]\nurl = ${url}\n`,
      problem: `gateway.toml:2: store.url: found ${isSecret}; allowed: postgres://user@host:port/database`,
    }),
  ),
  ...key("store", "key_file", "a path", ['""', "1"]),
  ...key("store", "access", '"store", "file"', ['"both"', "true"]),
  ...key("store", "max_staleness", "a whole number from 2 to 3600", ["1", "3601", "2.5", '"10"']),
];

const upstreamUrl =
  "http://host:port, https://host:port or unix:/path, without path, query and credentials";
const homeUrl = `${upstreamUrl}; or a database: postgres://, mysql://, mariadb:// or sqlite:DIRECTORY`;

const healthPath = "nothing, or / and visible ASCII characters but #";
const once = "a URL that stands nowhere else in [upstream]";

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
