interface Broken {
  text: string;
  problem: string;
}

/**
 * One file a line, or one for each of the values that are set apart by ` | `:
 * `section.key = VALUES => what is allowed`, `section.key = ["good", VALUES] => what is allowed`,
 * or `LINE; LINE => where: what is wrong`, in which % stands for each of ` <= VALUES`.
 */
function files(table: string): Broken[] {
  return table
    .trim()
    .split("\n")
    .flatMap((line) => {
      const [left = "", right = ""] = line.split(" => ");
      if (/^\d+: /.test(right)) {
        const [problem = "", values] = right.split(" <= ");
        const text = `${left.split("; ").join("\n")}\n`;
        const filled = (template: string, value: string) => template.split("%").join(value);
        if (values === undefined) return [{ text, problem: `gateway.toml:${problem}` }];
        return values.split(" | ").map((value) => ({
          text: filled(text, value),
          problem: `gateway.toml:${filled(problem, value)}`,
        }));
      }
      const [, section, key, good, values = ""] =
        /^(.*)\.(\w+) = (?:\[("[^"]*"), )?(.*?)\]?$/.exec(left) ?? [];
      return values.split(" | ").map((value) => ({
        text: `[${section}]\n${key} = ${good ? `[\n  ${good},\n  ${value},\n]` : value}\n`,
        problem: `gateway.toml:2: ${section}.${key}${good ? "[1]" : ""}: found ${value}; allowed: ${right}`,
      }));
    });
}

export const auth = files(String.raw`
auth.insecure_allow_remote = 0 => true or false
auth.passwords = "some" => true or false
auth.refuse_common_passwords = "some" => true or false
auth.check_permissions = "yes" | 1 => true or false
auth.token_expiration = 0 | 31622401 => a whole number from 1 to 31622400
auth.signing_algorithm = "none" | "es256" => "ES256", "EdDSA", "RS256", "HS256"
auth.argon2_time_cost = 0 | 65 => a whole number from 1 to 64
auth.argon2_parallelism = 0 | 65 => a whole number from 1 to 64
auth.argon2_memory_cost = 1048577 => a whole number from 8 to 1048576
auth.argon2_memory_cost = 31 => at least 8 * argon2_parallelism, which is 32
auth.access_control_file = "" | false => a path
auth.revocations_file = "a\u0000b" => a path
auth.default_database = "*" | "a.b" | "" => 1 to 63 ASCII letters, digits, _ and -
[auth]; default_database = "ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddé" => 2: auth.default_database: found "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd…; allowed: 1 to 63 ASCII letters, digits, _ and -
auth.issuer = "" | "a b" | "é" => 1 to 255 visible ASCII characters
auth.max_failures_per_user_and_address = 0 | 1000001 => a whole number from 1 to 1000000
auth.max_failures_per_address = 0 => a whole number from 1 to 1000000
auth.failure_window = 0 => a whole number from 1 to 86400
auth.accept = ["bearer", "Basic" | "header" | "header:" | "header:a b" | "header:Authorization" | "header:Cookie" | "header:X-Gatehouse-Key" | "header:Connection" | "header:content_type" | "header:Accept" | "header:accept_encoding" | "header:Sec-Fetch-Site" | "token"] => "bearer", "basic", "apikey", or "header:" and a header name without another meaning, such as "header:x-api-key"
auth.accept = ["header:X-Key", "header:x_key"] => each credential once
[server]; host = "0.0.0.0"; [auth]; enabled = false => 4: auth.enabled: found false; allowed: true, since other machines can reach server.host "0.0.0.0"; to go without authentication set server.host = "127.0.0.1", or accept the risk with auth.insecure_allow_remote = true
`);

export const mcp = files(String.raw`
mcp.enabled = "true" => true or false
mcp.forward_last_event_id = 1 | "true" => true or false
mcp.upstream = "127.0.0.1:9200" | "unix:/run/mcp.sock" | "http://a/mcp?x=1" => an http:// or https:// URL without query and credentials
[mcp]; authorization = "Bearer hunter2\n" => 2: mcp.authorization: found a secret (not shown); allowed: a header value of visible ASCII characters
[mcp]; authorization = "Bearer hunter2"; authorization_file = "secret" => 3: mcp.authorization_file: found "secret"; allowed: either authorization or authorization_file, not both
mcp.authorization_file = "missing" => a file that can be read (ENOENT: missing)
mcp.max_body_bytes = 1023 | 1073741825 => a whole number from 1024 to 1073741824
mcp.result_bytes = 16383 | 16777217 => a whole number from 16384 to 16777216
mcp.row_limit = 0 | 100001 | "10" => a whole number from 1 to 100000
mcp.app_schemes = ["cursor", "javascript" | "data" | "Cursor" | "vscode:" | ""] => a scheme in lower case that browsers do not use
mcp.registrations_per_hour = 0 | 1.5 => a whole number from 1 to 1000000
mcp.private_client_hosts = ["localhost:8443", "https://apps.corp.example" | "apps.corp.example/" | "*.corp.example" | "apps.corp.example:443" | "user@apps.corp.example"] => a host or host:port of https URLs, in lower case and without *
mcp.tools = 1 => an array of tables
mcp.authorization_servers = 1 => an array of tables
mcp.clients = 1 => an array of tables
[[mcp.tools]]; name = %; permission = "SELECT"; database = "main" => 2: mcp.tools[0].name: found %; allowed: 1 to 128 visible ASCII characters <= "" | "a b"
[[mcp.tools]]; name = "run"; permission = "select"; database = "main" => 3: mcp.tools[0].permission: found "select"; allowed: "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "CREATE DATABASE", "DROP DATABASE", "GRANT"
[[mcp.tools]]; name = "run"; permission = "SELECT"; database = % => 4: mcp.tools[0].database: found %; allowed: 1 to 63 letters, digits, - and _ <= "*" | "a.b"
[[mcp.tools]]; name = "run"; permission = "SELECT"; database_argument = "" => 4: mcp.tools[0].database_argument: found ""; allowed: 1 to 128 visible ASCII characters
[[mcp.authorization_servers]]; issuer = %; prefix = "staff" => 2: mcp.authorization_servers[0].issuer: found %; allowed: an https:// URL without query and fragment, or http:// on loopback <= "id.example.com" | "http://id.example.com" | "https://id.example.com/?a"
[[mcp.authorization_servers]]; issuer = "https://id.example.com"; prefix = % => 3: mcp.authorization_servers[0].prefix: found %; allowed: 1 to 63 letters, digits, - and _, not group <= "" | "a:b" | "group"
[[mcp.authorization_servers]]; issuer = "https://id.example.com"; prefix = "staff"; username_claim = "" => 4: mcp.authorization_servers[0].username_claim: found ""; allowed: the name of a claim
[[mcp.authorization_servers]]; issuer = "https://id.example.com"; prefix = "staff"; audience = % => 4: mcp.authorization_servers[0].audience: found %; allowed: 1 to 255 visible ASCII characters <= "" | "a b"
[[mcp.clients]]; client_id = ""; client_name = "Desktop"; redirect_uris = ["http://127.0.0.1/callback"] => 2: mcp.clients[0].client_id: found ""; allowed: 1 to 128 visible ASCII characters
[[mcp.clients]]; client_id = "desktop"; client_name = ""; redirect_uris = ["http://127.0.0.1/callback"] => 3: mcp.clients[0].client_name: found ""; allowed: 1 to 100 characters
[[mcp.clients]]; client_id = "desktop"; client_name = "Desktop"; redirect_uris = [] => 4: mcp.clients[0].redirect_uris: found an empty array; allowed: a non-empty array of (https:// URLs, http:// on loopback, or app.scheme:/path, without fragment)
[[mcp.clients]]; client_id = "desktop"; client_name = "Desktop"; redirect_uris = [%] => 4: mcp.clients[0].redirect_uris[0]: found %; allowed: https:// URLs, http:// on loopback, or app.scheme:/path, without fragment <= "http://example.com/" | "javascript:/x" | "myapp:opaque" | "com.example.app:/x#y"
[[mcp.tools]]; name = "run"; permission = "SELECT"; database = "main"; [[mcp.tools]]; name = "run"; permission = "SELECT"; database = "main" => 6: mcp.tools[1].name: found "run"; allowed: a value that no other one has
`);

const issuer = '[[issuers]]; issuer = "https://id.example.com"; prefix = "staff"; opens = ["mcp"]';
const second =
  '[[issuers]]; issuer = "https://b.example.com"; prefix = "b"; opens = ["mcp", "query"]; audience = "a"';
const login = (more: string) => `login = { client_id = "g", label = "x"${more && `, ${more}`} }`;
const introspection =
  'introspection = { url = "https://id.example.com", client_id = "g", client_secret_file = "missing" }';

export const issuers = files(`
issuers = 1 => 1: issuers: found 1; allowed: an array of tables
[[issuers]]; issuer = "https://id.example.com"; prefix = "staff" => 1: issuers[0].opens: found nothing; allowed: a non-empty array of ("mcp", "query")
[[issuers]]; issuer = "https://id.example.com"; prefix = "staff"; opens = ["query"] => 1: issuers[0].audience: found nothing; allowed: a value, which an issuer that opens "query" needs
[[issuers]]; issuer = "https://id.example.com"; prefix = "group"; opens = ["mcp"] => 3: issuers[0].prefix: found "group"; allowed: 1 to 63 letters, digits, - and _, not group
[[issuers]]; issuer = "https://id.example.com"; prefix = "staff"; opens = [%] => 4: issuers[0].opens[0]: found %; allowed: "mcp", "query" <= "api" | "login"
${issuer}; audience = % => 5: issuers[0].audience: found %; allowed: 1 to 255 visible ASCII characters, or a non-empty array of such texts <= "" | 1
${issuer}; audience = ["a", "b c"] => 5: issuers[0].audience[1]: found "b c"; allowed: 1 to 255 visible ASCII characters, or a non-empty array of such texts
${issuer}; groups_claim = % => 5: issuers[0].groups_claim: found %; allowed: the name of a claim, a path with dots, or an array of one name with dots <= "" | 1
${issuer}; groups_claim = ["a", "b"] => 5: issuers[0].groups_claim: found an array; allowed: the name of a claim, a path with dots, or an array of one name with dots
${issuer}; required_claims = { a = % } => 5: issuers[0].required_claims.a: found %; allowed: text, a whole number, true, false, or a non-empty array of them <= 1.5
${issuer}; groups_claim_optional = "yes" => 5: issuers[0].groups_claim_optional: found "yes"; allowed: true or false
${issuer}; attribute_claims = { username = "sub" } => 5: issuers[0].attribute_claims.username: found username; allowed: letters, digits, _ and -, not username
${issuer}; default_scopes = ["openid"] => 5: issuers[0].default_scopes[0]: found "openid"; allowed: "mcp:tools", "mcp:resources"
${issuer}; jwks_url = % => 5: issuers[0].jwks_url: found %; allowed: an https:// URL without credentials and fragment, or http:// on loopback <= "http://id.example.com/keys" | "ftp://id.example.com"
${issuer}; jwks_url = "https://id.example.com"; jwks_file = "keys.json" => 6: issuers[0].jwks_file: found "keys.json"; allowed: either jwks_url or jwks_file, not both
${issuer}; ${introspection} => 5: issuers[0].introspection.client_secret_file: found "missing"; allowed: a file that can be read (ENOENT: missing)
${issuer}; introspection = { url = "http://id.example.com", client_id = "g", client_secret_file = "s" } => 5: issuers[0].introspection.url: found "http://id.example.com"; allowed: an https:// URL without credentials and fragment, or http:// on loopback
${issuer}; ${introspection}; ${second}; ${introspection} => 11: issuers[1].introspection: found a table; allowed: one issuer with introspection that opens "mcp"
${issuer}; [[issuers]]; issuer = "https://id.example.com"; prefix = "b"; opens = ["mcp"] => 6: issuers[1].issuer: found "https://id.example.com"; allowed: a value that no other one has
${issuer}; [[mcp.authorization_servers]]; issuer = "https://id.example.com"; prefix = "other" => 6: mcp.authorization_servers[0].issuer: found "https://id.example.com"; allowed: a value that none of [[issuers]] has
${issuer}; [[mcp.authorization_servers]]; issuer = "https://c.example.com"; prefix = "staff" => 7: mcp.authorization_servers[0].prefix: found "staff"; allowed: a value that none of [[issuers]] has
${issuer}; [auth]; issuer = "https://id.example.com" => 2: issuers[0].issuer: found "https://id.example.com"; allowed: another value than auth.issuer
${issuer}; [server]; public_url = "https://id.example.com" => 2: issuers[0].issuer: found "https://id.example.com"; allowed: another URL than that of this gateway
${issuer}; username_claim = "" => 5: issuers[0].username_claim: found ""; allowed: the name of a claim
${issuer}; jwks_file = "" => 5: issuers[0].jwks_file: found ""; allowed: a path
${issuer}; introspection = { url = "https://id.example.com", client_id = %, client_secret_file = "s" } => 5: issuers[0].introspection.client_id: found %; allowed: 1 to 255 printable ASCII characters <= "" | "é"
${issuer}; introspection = { url = "https://id.example.com", client_id = "g", client_secret_file = "s", cache = 301 } => 5: issuers[0].introspection.cache: found 301; allowed: a whole number from 0 to 300
${issuer}; introspection = { url = "https://id.example.com", client_id = "g", client_secret_file = "s", always = 1 } => 5: issuers[0].introspection.always: found 1; allowed: true or false
${issuer}; logins = "x" => 5: issuers[0].logins: found logins; allowed: issuer, prefix, username_claim, opens, audience, groups_claim, groups_claim_optional, required_claims, attribute_claims, default_scopes, jwks_url, jwks_file, introspection, login, id_jag (did you mean login?)
${issuer}; ${login("")} => 5: issuers[0].login.client_secret_file: found nothing; allowed: either client_secret_file or private_key_file
${issuer}; ${login('client_secret_file = "a", private_key_file = "b"')} => 5: issuers[0].login.client_secret_file: found "a"; allowed: either client_secret_file or private_key_file
${issuer}; ${login('client_secret_file = "missing"')} => 5: issuers[0].login.client_secret_file: found "missing"; allowed: a file that can be read (ENOENT: missing)
${issuer}; ${login('private_key_file = "missing"')} => 5: issuers[0].login.private_key_file: found "missing"; allowed: a file that can be read (ENOENT: missing)
${issuer}; ${login('client_secret_file = "a", recheck = %')} => 5: issuers[0].login.recheck: found %; allowed: a whole number from 1 to 86400 <= 0 | 86401
${issuer}; ${login('client_secret_file = "a", scopes = ["a b"]')} => 5: issuers[0].login.scopes[0]: found "a b"; allowed: a scope without spaces
${issuer}; login = { client_id = %, label = "x", client_secret_file = "a" } => 5: issuers[0].login.client_id: found %; allowed: 1 to 255 printable ASCII characters <= "" | "é"
${issuer}; login = { client_id = "g", label = "", client_secret_file = "a" } => 5: issuers[0].login.label: found ""; allowed: 1 to 100 characters
${issuer}; id_jag = true => 5: issuers[0].id_jag: found true; allowed: false, since the embedded authorization server is off: it needs mcp.enabled, and an issuer with login if any opens "mcp"
${second}; id_jag = true; [mcp]; enabled = false => 6: issuers[0].id_jag: found true; allowed: false, since the embedded authorization server is off: it needs mcp.enabled, and an issuer with login if any opens "mcp"
[auth]; passwords = false => 2: auth.passwords: found false; allowed: true, since none of [[issuers]] has login
`);

export const others = files(String.raw`
metrics.listen = "9464" | "127.0.0.1" | "::1:9464" | "[127.0.0.1]:9464" | "127.0.0.1:65536" | ":9464" => host:port, an IPv6 host in brackets
audit.file = "" | 1 => a path
console.listen = "8081" | "127.0.0.1" => host:port, an IPv6 host in brackets
console.listen = "0.0.0.0:8081" | "console.example.com:8081" | "[::]:8081" => a loopback address, or console.public_url with https://, since passwords go over it
console.public_url = "console.example.com" | "https://console.example.com/x" => an http:// or https:// URL without path, query and credentials, or an empty string
console.public_url = "http://console.example.com" | "http://10.0.0.1:8081" => an https:// URL, or one of a loopback address, since passwords go over it
[server]; public_url = "https://gate.example.com"; [console]; public_url = "https://gate.example.com" => 4: console.public_url: found "https://gate.example.com"; allowed: another origin than server.public_url
[server]; port = 9464; [metrics]; listen = "127.0.0.1:9464" => 4: metrics.listen: found "127.0.0.1:9464"; allowed: another port than server.port
[console]; listen = "127.0.0.1:9464"; [metrics]; listen = "0.0.0.0:9464" => 4: metrics.listen: found "0.0.0.0:9464"; allowed: another port than console.listen
approvals.wait = 0 | -1 | 86401 | 1.5 | "10m" => a whole number from 1 to 86400
approvals.keep = -1 | 3651 | 0.5 | "30d" => a whole number from 0 to 3650
[approvals]; notify = { url = %, secret_file = "s" } => 2: approvals.notify.url: found a secret (not shown); allowed: an https:// URL without credentials and fragment, or http:// on loopback <= "http://hooks.example.com/T0KEN" | "https://a:b@hooks.example.com" | "ftp://hooks.example.com"
[approvals]; notify = { url = "https://hooks.example.com/x" } => 2: approvals.notify.secret_file: found nothing; allowed: a path
[approvals]; notify = { url = "https://hooks.example.com/x", secret_file = "missing" } => 2: approvals.notify.secret_file: found "missing"; allowed: a file that can be read (ENOENT: missing)
[server]; prot = 8080 => 2: server.prot: found prot; allowed: host, port, workers, public_url, base_path, max_body_bytes, max_buffered_bytes, request_timeout, shutdown_delay, shutdown_grace, trusted_proxies, allowed_origins, tls (did you mean port?)
; [sever]; port = 8080 => 2: sever: found sever; allowed: server, auth, upstream, query, routes, metrics, audit, mcp, store, console, approvals, issuers (did you mean server?)
[console]; enabled = true => 2: console.enabled: found enabled; allowed: listen, public_url
[audit]; path = "audit.log" => 2: audit.path: found path; allowed: file
[mcp]; "odd\u001b key" = 1 => 2: mcp."odd\u001b key": found "odd\u001b key"; allowed: enabled, upstream, authorization, authorization_file, forward_last_event_id, max_body_bytes, row_limit, result_bytes, app_schemes, registrations_per_hour, private_client_hosts, tools, authorization_servers, clients
upstream = "Bearer hunter2" => 1: upstream: found a string; allowed: a table
mcp = 1979-05-27 => 1: mcp: found a date; allowed: a table
server.host = 1979-05-27 => a host name or an IP address
[server]; "__proto__" = { port = 1 } => 2: server.__proto__: found __proto__; allowed: host, port, workers, public_url, base_path, max_body_bytes, max_buffered_bytes, request_timeout, shutdown_delay, shutdown_grace, trusted_proxies, allowed_origins, tls
constructor = 1 => 1: constructor: found constructor; allowed: server, auth, upstream, query, routes, metrics, audit, mcp, store, console, approvals, issuers
[[upstream]]; authorization = "Bearer hunter2" => 1: upstream: found an array; allowed: a table (did you mean [upstream]?)
[server]; port = 1; port = 2 => 3: trying to redefine an already defined table or value
[upstream]; authorization = "Bearer hunter2 => 2: control characters are not allowed in strings: is its closing quote missing?
`);

export const query = files(`
query.level = "half" => "core", "full"
query.extra_fields = ["hint", "database" | "Order_By" | "orderby" | "op" | "Select" | "a-b" | "" | "__proto__"] => 1 to 63 ASCII letters, digits and _, not a name of the query grammar
[query]; extra_fields = ["hint", "HINT"] => 2: query.extra_fields[1]: found "HINT"; allowed: each name once, and hint is already there
[query.operations]; Truncate = "DELETE"; % = "SELECT" => 3: query.operations.%: found %; allowed: a letter and up to 62 letters and digits, not a name of the query grammar <= Select | Batch | batch
[query.operations]; Truncate = "DELETE"; op = "SELECT" => 3: query.operations.op: found op; allowed: a letter and up to 62 letters and digits, not a name of the query grammar
[query.operations]; Truncate = "DELETE"; % = "SELECT" => 3: query.operations.%: found %; allowed: a letter and up to 62 letters and digits, not a name of the query grammar <= 1st | constructor | With_Line
[query.operations]; Truncate = "DELETE"; truncate = "DROP" => 3: query.operations.truncate: found "DROP"; allowed: each name once, and Truncate is already there
[query]; operations = { Truncate = "GRANT" } => 2: query.operations.Truncate: found "GRANT"; allowed: "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"
`);

export const routes = files(String.raw`
[[routes]]; path = %; access = "public" => 2: routes[0].path: found %; allowed: / and segments of letters, digits, -, ., _, ~ or :name; the last one may be empty or * <= "" | "stats" | "//" | "/a//" | "/a//b" | "/a/./b" | "/a/../b" | "/a/.." | "/a;b" | "/a\\b" | "/a%62" | "/a b" | "/a?b" | "/a/:" | "/a/x:y" | "/a/:b/:b" | "/*/a" | "/a/*/" | "/a/b*"
[[routes]]; path = %; access = "public" => 2: routes[0].path: found %; allowed: a path that is not below one of the gateway's own: /.well-known, /api, /healthz, /login, /logout, /mcp, /oauth, /openapi.yaml, /query, /readyz, /schema <= "/login" | "/login/" | "/LOGIN" | "/query" | "/query/*" | "/mcp" | "/api/stats" | "/.well-known/x" | "/oauth/x" | "/healthz" | "/readyz" | "/logout" | "/openapi.yaml"
[server]; base_path = "/a/Gate"; [[routes]]; path = %; access = "public" => 4: routes[0].path: found %; allowed: a path that is not below one of the gateway's own: /.well-known, /a/Gate <= "/a/Gate" | "/A/gate/*" | "/a/Gate/" | "/a/gate/:x" | "/.Well-Known/*"
[server]; base_path = "/gate"; [[routes]]; path = "/:a/b"; access = "public"; values.a = ["x", "GATE"] => 6: routes[0].values.a: found an array; allowed: no first segment of the gateway's own paths
[auth]; accept = ["header:X-Api-Key"]; [[routes]]; path = "/a"; access = "public"; forward_headers = ["Prefer", "X_API_KEY"] => 6: routes[0].forward_headers[1]: found "X_API_KEY"; allowed: no header of auth.accept or upstream.credential
[auth]; accept = ["header:X-Api-Key"]; [[routes]]; path = "/a"; access = "public"; database_header = "x-api-key" => 6: routes[0].database_header: found "x-api-key"; allowed: no header of auth.accept or upstream.credential
[[routes]]; path = "/a"; access = "public"; [[routes]]; path = "/b";  => 4: routes[1].access: found nothing; allowed: "public", "authenticated", "administrator", "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "CREATE DATABASE", "DROP DATABASE", "GRANT"
[[routes]]; path = "/a"; access = "select" => 3: routes[0].access: found "select"; allowed: "public", "authenticated", "administrator", "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "CREATE DATABASE", "DROP DATABASE", "GRANT"
[[routes]]; path = "/a"; access = "SELECT" => 3: routes[0].access: found "SELECT"; allowed: a right on a database, which :database in the path, database or database_header names
[[routes]]; path = "/a/:database/*"; access = "SELECT" => 3: routes[0].access: found "SELECT"; allowed: public, authenticated or administrator, since the path ends in *
[[routes]]; path = "/a/:database"; access = %; database_header = "X-Database" => 4: routes[0].database_header: found "X-Database"; allowed: nothing, since the path or database names the database <= "SELECT" | "authenticated"
[[routes]]; path = "/a"; access = "public"; methods = ["POST", %] => 4: routes[0].methods[1]: found %; allowed: "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS" <= "CONNECT" | "TRACE" | "get"
[[routes]]; path = "/a"; access = "public"; methods = [] => 4: routes[0].methods: found an empty array; allowed: a non-empty array of ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
[[routes]]; path = "/a"; access = "public"; database_header = "Cookie" => 4: routes[0].database_header: found "Cookie"; allowed: a header name that is not hop-by-hop, no credential, and not set by the gateway itself
[[routes]]; path = "/a"; access = "public"; forward_headers = ["Prefer", %] => 4: routes[0].forward_headers[1]: found %; allowed: a header name that is not hop-by-hop, no credential, and not set by the gateway itself <= "Authorization" | "X_Gatehouse_User" | "X-Forwarded-For" | "a b"
[[routes]]; path = "/:a"; access = "SELECT"; database = % => 4: routes[0].database: found %; allowed: a name or :name, or two of them with a dot between, no name beginning with _ <= "" | ".." | "_all" | "*" | "a/b" | "a.b.c" | ":" | ":a." | ":a:b" | "a%62"
[[routes]]; path = "/:a"; access = "SELECT"; database = % => 4: routes[0].database: found %; allowed: a parameter of the path, which has no :b <= ":b" | ":a.:b" | ":b.main"
[[routes]]; path = "/:a"; access = "SELECT"; database = "main"; table = % => 5: routes[0].table: found %; allowed: a name that does not begin with _, or :name <= "" | "_all" | "*" | "logs-*" | "a.b" | ":a.b" | ":"
[[routes]]; path = "/:a"; access = "SELECT"; database = "main"; table = ":b" => 5: routes[0].table: found ":b"; allowed: a parameter of the path, which has no :b
[[routes]]; path = "/:a"; access = %; database = "main"; table = ":a" => 5: routes[0].table: found ":a"; allowed: a table only where access is one of SELECT, INSERT, UPDATE, DELETE, CREATE, DROP <= "authenticated" | "public" | "administrator" | "GRANT" | "DROP DATABASE"
[[routes]]; path = "/:a"; access = "public"; values.a = % => 4: routes[0].values.a: found %; allowed: "plain", "number", "uuid", "any", or a non-empty array of segments <= "word" | "" | 1 | true
[[routes]]; path = "/:a"; access = "public"; values.a = [] => 4: routes[0].values.a: found an empty array; allowed: "plain", "number", "uuid", "any", or a non-empty array of segments
[[routes]]; path = "/:a"; access = "public"; values.a = [1] => 4: routes[0].values.a: found an array; allowed: "plain", "number", "uuid", "any", or a non-empty array of segments
[[routes]]; path = "/:a"; access = "public"; values.a = ["a", %] => 4: routes[0].values.a[1]: found %; allowed: "plain", "number", "uuid", "any", or a non-empty array of segments <= "b/c" | ".." | "a%62" | ""
[[routes]]; path = "/:a"; access = "public"; values.b = "any" => 4: routes[0].values: found a table; allowed: parameters of the path, which has no :b
[[routes]]; path = "/a/:database"; access = "SELECT"; values.database = "any" => 4: routes[0].values.database: found "any"; allowed: "plain", "number", "uuid", or an array of plain names that do not begin with _, since :database names a database or table
[[routes]]; path = "/a/:database"; access = "SELECT"; values.database = % => 4: routes[0].values.database: found an array; allowed: "plain", "number", "uuid", or an array of plain names that do not begin with _, since :database names a database or table <= ["main", "_all"] | ["a.b"] | ["a~"]
[[routes]]; path = "/a/:t"; access = "SELECT"; database = "main"; table = ":t"; values.t = "any" => 6: routes[0].values.t: found "any"; allowed: "plain", "number", "uuid", or an array of plain names that do not begin with _, since :t names a database or table
[[routes]]; path = "/:a"; access = "public"; values.a = % => 4: routes[0].values.a: found an array; allowed: no first segment of the gateway's own paths <= ["x", "query"] | ["API"]
[[routes]]; path = "/a"; access = "public"; query = [%] => 4: routes[0].query[0]: found %; allowed: a parameter name or * <= "" | "a=b" | "a&b" | "a;b" | "a*"
[[routes]]; path = "/a"; access = "public"; pages = "yes" => 4: routes[0].pages: found "yes"; allowed: true or false
[[routes]]; path = "/a"; access = "public"; methods = ["POST"]; upgrade = true => 5: routes[0].upgrade: found true; allowed: true only where GET is one of the methods
[[routes]]; path = "/a"; access = "public"; upgrade_idle_timeout = 0 => 4: routes[0].upgrade_idle_timeout: found 0; allowed: a whole number from 1 to 86400
[[routes]]; path = "/a/:x"; access = "public"; [[routes]]; path = "/a/:y"; access = "public"; methods = ["POST", "GET"] => 5: routes[1].path: found "/a/:y"; allowed: a path that matches no request of routes[0], GET /a/:x
[[routes]]; path = "/a/*"; access = "public"; [[routes]]; path = "/a/*"; access = "administrator" => 5: routes[1].path: found "/a/*"; allowed: a path that matches no request of routes[0], GET /a/*
[[routes]]; path = "/a/:x"; access = "public"; values.x = %; [[routes]]; path = "/a/:y"; access = "public"; values.y = ["get", "5"] => 6: routes[1].path: found "/a/:y"; allowed: a path that matches no request of routes[0], GET /a/:x <= "plain" | "number" | "any" | ["put", "get"]
[routes]; path = "/a" => 1: routes: found a table; allowed: an array of tables (did you mean [[routes]]?)
`);

export const server = files(String.raw`
server.host = "" | "[::1]" | "a b" | "10.0.0" | "fe80::1%eth0" | 5 => a host name or an IP address
server.port = "eighty" | -1 | 65536 | 80.5 | true | nan => a whole number from 0 to 65535
server.workers = -1 | "auto" | 1.5 => a whole number from 0 to 64
[server]; workers = 65; max_body_bytes = 1000 => 2: server.workers: found 65; allowed: a whole number from 0 to 64
[server]; workers = 64 => 1: server.max_buffered_bytes: found 268435456; allowed: at least max_body_bytes for each of 64 workers, which is 671088640
[server]; workers = 8; [upstream]; url = "http://a:1"; connections = 7 => 5: upstream.connections: found 7; allowed: at least one for each of server.workers, which is 8
[server]; workers = 2 => 2: server.workers: found 2; allowed: 1 over SQLite, whose files one process writes; for more workers use PostgreSQL or MySQL
[server]; workers = 3; [upstream]; url = "postgres://app@db/app"; pool_size = 2 => 5: upstream.pool_size: found 2; allowed: at least one for each of server.workers, which is 3
server.public_url = "gate.example.com" | "https://gate.example.com/x" | "https://gate.example.com?x" | "https://gate.example.com#x" | "ftp://gate.example.com" | "https:\\gate" => an http:// or https:// URL without path, query and credentials, or an empty string
server.base_path = "gate" | "/" | "/a/" | "//a" | "/a//b" | "/.." | "/a/." | "/a b" | "/a%62" | "/:a" | "/*" | "/.well-known" | "/.well-known/a" => nothing, or a path of letters, digits, -, ., _ and ~ without a slash at the end, not under /.well-known
[server]; base_path = ""; [upstream]; url = "http://127.0.0.1:8000"; preset = "chroma" => 2: server.base_path: found ""; allowed: a path, since all others are the upstream's with upstream.preset
server.max_body_bytes = 0 | 1.5 => a whole number from 1 to 1073741824
[server]; max_body_bytes = 1073741825; max_buffered_bytes = 1073741825 => 2: server.max_body_bytes: found 1073741825; allowed: a whole number from 1 to 1073741824
server.max_buffered_bytes = "many" => a whole number from 1 to 1099511627776
[server]; max_body_bytes = 100; max_buffered_bytes = 99 => 3: server.max_buffered_bytes: found 99; allowed: at least max_body_bytes, which is 100
[server]; max_body_bytes = 1073741824 => 1: server.max_buffered_bytes: found 268435456; allowed: at least max_body_bytes, which is 1073741824
server.request_timeout = 0 | 86401 | 0.5 => a whole number from 1 to 86400
server.shutdown_delay = -1 | 3601 => a whole number from 0 to 3600
server.shutdown_grace = 0 | 86401 => a whole number from 1 to 86400
server.trusted_proxies = ["10.0.0.0/8", "10.0.0.0/33" | "10.0.0.0/" | "10.0.0.0/8/8" | "10.1" | "proxy.example.com" | "::1%lo" | "::/129" | 7] => an IP address or a network such as 10.0.0.0/8
server.trusted_proxies = "10.0.0.0/8" => an array of (an IP address or a network such as 10.0.0.0/8)
server.tls.certificate = 5 => a path
server.tls.key = true => a path
[server.tls]; certificate = "fullchain.pem" => 1: server.tls.key: found nothing; allowed: a path, since certificate and key go together
server.allowed_origins = ["http://localhost:3000", "*" | "https://*.example.com" | "https://app.example.com/" | "https://App.example.com" | "https://app.example.com:443" | "app.example.com" | "null" | "file://"] => an exact origin such as https://app.example.com, in lower case, without a path or *
`);

export const store = files(`
[store]; url = % => 2: store.url: found a secret (not shown); allowed: postgres://user@host:port/database, with a percent-encoded user and password <= "" | 1 | "mysql://gatehouse@db/gatehouse" | "postgres:" | "http://db:5432"
[store]; url = "postgres://ann:hunter2@db/x?sslmod=y" => 2: store.url: has an unknown parameter "sslmod"; use host, port, user, password, application_name, connect_timeout, sslmode, sslrootcert, sslcert, sslkey
store.key_file = "" | 1 => a path
store.access = "both" | true => "store", "file"
store.max_staleness = 1 | 3601 | 2.5 | "10" => a whole number from 2 to 3600
`);

export const upstream = files(String.raw`
upstream.url = "127.0.0.1:9090" | "http://127.0.0.1:9090/query" | "http://127.0.0.1:9090?a=b" | "http://127.0.0.1:99999" | "unix:" | "tcp://127.0.0.1" | "postgres://" | "sqlite:" | "sqlite://shop" => http://host:port, https://host:port or unix:/path, without path, query and credentials; or a database: postgres://, mysql:// or mariadb:// with a percent-encoded user and password, or sqlite:DIRECTORY
[upstream]; url = "http://user:pa@ss@127.0.0.1:9090" => 2: upstream.url: found "http://***@127.0.0.1:9090"; allowed: http://host:port, https://host:port or unix:/path, without path, query and credentials; or a database: postgres://, mysql:// or mariadb:// with a percent-encoded user and password, or sqlite:DIRECTORY
[upstream]; authorization = "Bearer hunter2\n" => 2: upstream.authorization: found a secret (not shown); allowed: a header value of visible ASCII characters
[upstream]; authorization = "Bearer hunter2"; authorization_file = "secret" => 3: upstream.authorization_file: found "secret"; allowed: either authorization or authorization_file, not both
upstream.authorization_file = "missing" => a file that can be read (ENOENT: missing)
upstream.authorization_file = "." => a regular file
upstream.forward_authorization = 0 => true or false
upstream.forward_headers = ["X-Tenant", "Connection" | "TE" | "Authorization" | "cookie" | "Host" | "Content-Length" | "X-Gatehouse-User" | "x_gatehouse_role" | "X-Forwarded-For" | "X-Request-Id" | "a b" | ""] => a header name that is not hop-by-hop, no credential, and not set by the gateway itself
upstream.preset = "qdrant" => "chroma", "opensearch", "couchdb"
upstream.preset = "chroma" => nothing, unless url is that of an HTTP server
[upstream]; url = "postgres://user@db/x"; preset = "chroma" => 3: upstream.preset: found "chroma"; allowed: nothing, unless url is that of an HTTP server
[upstream]; urls = ["http://a:1"]; preset = "chroma" => 3: upstream.preset: found "chroma"; allowed: nothing, unless url is that of an HTTP server
[upstream]; url = "http://a:1"; preset = "chroma"; [[upstream.databases]]; databases = ["b"]; url = "http://b:1" => 4: upstream.databases: found an array; allowed: nothing, since upstream.preset uses one upstream
[upstream]; url = "http://a:1"; preset = "chroma"; query_form = "op" => 4: upstream.query_form: found "op"; allowed: "keyed", which upstream.preset requires
[upstream]; url = "http://a:1"; preset = "chroma"; forward_authorization = true => 4: upstream.forward_authorization: found true; allowed: false, which upstream.preset requires
[upstream]; url = "http://a:1"; preset = "chroma"; [[routes]]; path = "/x/:database"; methods = ["GET"]; access = "SELECT" => 4: routes: found an array; allowed: none, since upstream.preset lists what passes
upstream.max_upload_bytes = 0 => a whole number from 1 to 1099511627776
[upstream]; url = "http://a:1"; credential.header = %; credential.file = "x" => 3: upstream.credential.header: found %; allowed: a header name that is not hop-by-hop and not set by the gateway itself <= "Connection" | "X-Gatehouse-User" | "x_forwarded_for" | "Host" | "a b" | ""
[upstream]; url = "http://a:1"; credential.file = "x" => 3: upstream.credential.header: found nothing; allowed: a header name that is not hop-by-hop and not set by the gateway itself
[upstream]; url = "http://a:1"; credential.header = "x-key" => 3: upstream.credential.file: found nothing; allowed: a path
[upstream]; url = "http://a:1"; credential = { header = "x-key", file = % } => 3: upstream.credential.file: found %; allowed: a file that can be read (ENOENT: missing) <= "missing"
[upstream]; url = "http://a:1"; authorization = "a"; credential = { header = "x-key", file = "x" } => 4: upstream.credential: found a table; allowed: either credential or authorization, not both
[upstream]; url = "http://a:1"; authorization_file = "a"; credential = { header = "x-key", file = "x" } => 4: upstream.credential: found a table; allowed: either credential or authorization, not both
[upstream]; credential = { header = "x-key", file = "x" } => 2: upstream.credential: found a table; allowed: nothing, unless url is that of an HTTP server
[upstream]; url = "http://a:1"; credential = { header = "X-Key", file = "x" }; forward_headers = ["X-Tenant", "x_key"] => 4: upstream.forward_headers[1]: found "x_key"; allowed: no header of auth.accept or upstream.credential
upstream.connections = 0 | 10001 => a whole number from 1 to 10000
upstream.connect_timeout = 0 => a whole number from 1 to 86400
upstream.response_timeout = 86401 => a whole number from 1 to 86400
upstream.query_form = "Op" => "keyed", "op"
upstream.health_path = "healthz" | "/a b" | "/a#b" | "/é" => nothing, or / and visible ASCII characters but #
upstream.health_interval = 0 => a whole number from 1 to 86400
upstream.query_form = "op" => "keyed", which the engine requires
[upstream]; url = "mysql://app:hunter2@db/shop" => 2: upstream.url: names a database, but every query names its own: remove it
[upstream]; url = "mariadb://db/" => 2: upstream.url: names no user: use mysql://user@host:port/
[upstream]; url = "mysql://app@db/?ssl-mode=PREFERRED" => 2: upstream.url: has an unknown ssl-mode; use DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY
[upstream]; url = "postgres://app@db/x?connect_timeout=0" => 2: upstream.url: has an invalid connect_timeout: use 1 to 9999 seconds
[upstream]; urls = ["postgres://app:hunter2@db/shop"] => 2: upstream.urls[0]: found "postgres://***@db/shop"; allowed: http://host:port, https://host:port or unix:/path, without path, query and credentials
[upstream]; url = "http://a:1"; statement_timeout = 5 => 3: upstream.statement_timeout: found 5; allowed: nothing, unless url is that of a database
[upstream]; url = "sqlite:shop"; pool_size = 5 => 3: upstream.pool_size: found 5; allowed: nothing, unless url is that of a database server
[upstream]; url = "mysql://app@db/"; postgres_databases = "schemas" => 3: upstream.postgres_databases: found "schemas"; allowed: nothing, unless url is that of PostgreSQL
[upstream]; url = "mysql://app@db/"; pool_size = 1001 => 3: upstream.pool_size: found 1001; allowed: a whole number from 1 to 1000
[upstream]; urls = ["127.0.0.1:9090"] => 2: upstream.urls[0]: found "127.0.0.1:9090"; allowed: http://host:port, https://host:port or unix:/path, without path, query and credentials
[upstream]; url = "http://a:1"; urls = ["http://b:1"] => 3: upstream.urls: found an array; allowed: either url or urls, not both
[upstream]; urls = ["http://a:1", "http://A:1/"] => 2: upstream.urls[1]: found "http://A:1/"; allowed: a URL that appears nowhere else in [upstream]
[upstream]; url = "http://a:1"; [[upstream.databases]]; databases = ["x"]; url = "http://a:1" => 5: upstream.databases[0].url: found "http://a:1"; allowed: a URL that appears nowhere else in [upstream]
[[upstream.databases]]; databases = ["x"] => 1: upstream.databases[0].url: found nothing; allowed: either url or urls
[[upstream.databases]]; databases = ["x"]; url = "http://a:1"; urls = ["http://b:1"] => 4: upstream.databases[0].urls: found an array; allowed: either url or urls, not both
[[upstream.databases]]; databases = ["x", "X"]; url = "http://a:1" => 2: upstream.databases[0].databases[1]: found "X"; allowed: each database once, whatever its case
[[upstream.databases]]; databases = ["a/b"]; url = "http://a:1" => 2: upstream.databases[0].databases[0]: found "a/b"; allowed: 1 to 63 letters, digits, - and _, or two such names with a dot between
`);
