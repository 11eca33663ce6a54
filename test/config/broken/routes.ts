import { type Broken, header } from "./file.ts";

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

/** What `[[routes]]` refuses. */
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
