import t from "tap";
import { schemaTables } from "../../src/config/issues.ts";
import { auth } from "./broken/auth.ts";
import { mcp } from "./broken/mcp.ts";
import { others } from "./broken/others.ts";
import { query } from "./broken/query.ts";
import { routes } from "./broken/routes.ts";
import { server } from "./broken/server.ts";
import { store } from "./broken/store.ts";
import { upstream } from "./broken/upstream.ts";
import { load, problemsOf } from "./support.ts";

const broken = { server, auth, upstream, query, routes, mcp, store, others };

for (const [name, files] of Object.entries(broken)) {
  t.test(`${name}: a broken file is refused with place, what was found, what is allowed`, (t) => {
    for (const { text, problem } of files) {
      t.strictSame(problemsOf(t, text), [problem], JSON.stringify(text));
    }
    t.end();
  });
}

t.test("no key is without a broken file", (t) => {
  const problems = Object.values(broken).flatMap((files) => files.map(({ problem }) => problem));
  for (const { name, isArray, keys } of schemaTables()) {
    for (const [key] of keys) {
      const path = isArray ? `${name}[0].${key}` : `${name}.${key}`;
      const isThere = problems.some((problem) =>
        [":", "[", "."].some((next) => problem.includes(`: ${path}${next}`)),
      );
      t.ok(isThere, path);
    }
  }
  t.end();
});

t.test("what was meant is named, wherever it would stand", (t) => {
  const text = `
[databse]
urls = "x"
[routes]
path = "/x"
[[server]]
[upstream]
ulr = "x"
host = "x"
`;
  const meant = problemsOf(t, text).map((line) => {
    const [, place, hint] = /^(\S+ \S+) .*\(did you mean (.*)\?\)$/.exec(line) ?? [];
    return `${place} ${hint}`;
  });
  t.strictSame(meant, [
    "gateway.toml:2: databse: [[upstream.databases]]",
    "gateway.toml:4: routes: [[routes]]",
    "gateway.toml:6: server: [server]",
    "gateway.toml:8: upstream.ulr: url",
    "gateway.toml:9: upstream.host: server.host",
  ]);
  t.end();
});

t.test("every problem of a file is reported, in the order of its lines", (t) => {
  const text = `
[upstream]
url = "nowhere"
[server]
port = 70000
colour = "red"
[auth]
enabled = "no"
`;
  const keys = problemsOf(t, text).map((line) => line.split(": ").slice(0, 2).join(" "));
  t.strictSame(keys, [
    "gateway.toml:3 upstream.url",
    "gateway.toml:5 server.port",
    "gateway.toml:6 server.colour",
    "gateway.toml:8 auth.enabled",
  ]);
  t.end();
});

t.test("what was found is cut to 64 characters, and cannot imitate other text", (t) => {
  const [long = ""] = problemsOf(t, `[server]\nhost = "${"x".repeat(30)} ${"y".repeat(100)}"\n`);
  t.match(long, /: found (.{63}…); allowed: /);
  const [odd = ""] = problemsOf(t, '[server]\nhost = "a\\u001b[2J\\u202e\\u0085"\n');
  t.match(odd, 'found "a\\u001b[2J\\u202e\\u0085"; allowed');
  t.end();
});

t.test("a secret is in no message, wherever in the section it was put", (t) => {
  const texts = [
    '[upstream]\nauthorization = ["Bearer hunter2"]\n',
    '[upstream]\nauthorization = { value = "Bearer hunter2" }\n',
    '[upstream]\nauthorisation = "Bearer hunter2"\n',
    'upstream = ["Bearer hunter2"]\n',
    '[upstream]\nauthorization = "Bearer hunter2" "\n',
  ];
  for (const text of texts) {
    const message = problemsOf(t, text).join("\n");
    t.not(message, "");
    t.notMatch(message, "hunter2");
  }
  t.end();
});

t.test("a value of the command line is reported under its option", (t) => {
  t.strictSame(problemsOf(t, "", { port: 70_000, host: "a b" }), [
    '--host: server.host: found "a b"; allowed: a host name or an IP address',
    "--port: server.port: found 70000; allowed: a whole number from 0 to 65535",
  ]);
  t.match(problemsOf(t, "", { port: Number.NaN }), [/^--port: server\.port: found nan;/]);
  t.match(problemsOf(t, "[auth]\nenabled = false\n", { host: "0.0.0.0" }), [
    /^gateway\.toml:2: auth\.enabled: found false;/,
  ]);
  t.end();
});

t.test("a section that is no table is reported whatever the command line says", (t) => {
  t.strictSame(problemsOf(t, "server = 5\n", { port: 1 }), [
    "gateway.toml:1: server: found a number; allowed: a table",
  ]);
  t.end();
});

t.test("without authentication every loopback host is accepted, and others on demand", (t) => {
  for (const host of ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST"]) {
    const text = `[server]\nhost = "${host}"\n[auth]\nenabled = false\n`;
    t.equal(load(t, text).configuration.auth.enabled, false, host);
  }
  for (const host of ["0.0.0.0", "::", "192.0.2.1", "localhost.example.com", "db"]) {
    const text = `[server]\nhost = "${host}"\n[auth]\nenabled = false\n`;
    t.equal(problemsOf(t, text).length, 1, host);
    t.ok(load(t, `${text}insecure_allow_remote = true\n`), host);
  }
  t.end();
});
