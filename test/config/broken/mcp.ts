import { element as arrayElement, type Broken, key } from "./file.ts";

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
function element(
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
    text: element(table, keys, wrong, value),
    problem: `gateway.toml:${place}: mcp.${table}[0].${wrong}: found ${value}; allowed: ${allowed}`,
  }));
}

const tool = { name: '"run"', permission: '"SELECT"', database: '"main"' };
const server = { issuer: '"https://id.example.com"', prefix: '"staff"' };
const client = {
  client_id: '"desktop"',
  client_name: '"Desktop"',
  redirect_uris: '["http://127.0.0.1/callback"]',
};

/** What `[mcp]` refuses. */
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
  ...arrayElement("mcp", "app_schemes", "cursor", scheme, [
    '"javascript"',
    '"data"',
    '"Cursor"',
    '"vscode:"',
    '""',
  ]),
  ...key("mcp", "registrations_per_hour", "a whole number from 1 to 1000000", ["0", "1.5"]),
  ...arrayElement("mcp", "private_client_hosts", "localhost:8443", documentHost, [
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
  ...inElement("authorization_servers", server, "issuer", issuer, [
    '"id.example.com"',
    '"http://id.example.com"',
    '"https://id.example.com/?a"',
  ]),
  ...inElement("authorization_servers", server, "prefix", name, ['""', '"a:b"']),
  ...inElement("authorization_servers", server, "username_claim", "the name of a claim", ['""']),
  ...inElement("authorization_servers", server, "audience", "1 to 255 visible ASCII characters", [
    '""',
    '"a b"',
  ]),
  ...inElement("clients", client, "client_id", visible, ['""']),
  ...inElement("clients", client, "client_name", "1 to 100 characters", ['""']),
  {
    text: element("clients", client, "redirect_uris", "[]"),
    problem: `gateway.toml:4: mcp.clients[0].redirect_uris: found an array; allowed: ${redirect}`,
  },
  {
    text: element("clients", client, "redirect_uris", '["http://example.com/"]'),
    problem: `gateway.toml:4: mcp.clients[0].redirect_uris[0]: found "http://example.com/"; allowed: ${uris}`,
  },
  ...["javascript:/x", "myapp:opaque", "com.example.app:/x#y"].map((uri) => ({
    text: element("clients", client, "redirect_uris", `["${uri}"]`),
    problem: `gateway.toml:4: mcp.clients[0].redirect_uris[0]: found "${uri}"; allowed: ${uris}`,
  })),
  {
    text: `${element("tools", tool, "database", '"main"')}${element("tools", tool, "database", '"main"')}`,
    problem:
      'gateway.toml:6: mcp.tools[1].name: found "run"; allowed: a value that no other one has',
  },
];
