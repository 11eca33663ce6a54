import t from "tap";
import { createFinder, readPath, readQuery, writePath } from "../../src/features/databases/path.ts";
import type { Preset, PresetEndpoint } from "../../src/features/databases/preset.ts";

function codeOf(run: () => unknown): string {
  try {
    run();
    return "accepted";
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : String(error);
  }
}

t.test("a path that a server may read in two ways is refused", async (t) => {
  for (const path of [
    "//a",
    "/a//b",
    "/a/../b",
    "/a/%2e%2e/b",
    "/a/%2E/b",
    "/a/..%2fb",
    "/a/x%2f..%2fb",
    "/a/x%5c..%5cb",
    "/a;x=1",
    "/a\\b",
    "/a#b",
    "/a/%",
    "/a/%zz",
    "/a/%ff",
    "/a/%c0%ae",
    "/a/%00",
    "/a/%0d%0a",
    "/a/%7f",
    "/a/%c2%85",
    "/a/ä",
    "/a/<b>",
  ]) {
    t.equal(
      codeOf(() => readPath(path)),
      "path_not_canonical",
      path,
    );
  }
});

t.test("a path is decoded exactly once and sent so that one decoding returns it", async (t) => {
  for (const [path, segments] of [
    ["/", [""]],
    ["/a/", ["a", ""]],
    ["/a/x%2Fy", ["a", "x/y"]],
    ["/a/%2562", ["a", "%62"]],
    ["/a/%7E%41", ["a", "~A"]],
    ["/a/x+y", ["a", "x+y"]],
    ["/a/%3B%3F%23", ["a", ";?#"]],
  ] as const) {
    t.same(readPath(path), segments, path);
    t.same(readPath(writePath(segments)), segments, path);
  }
});

t.test("a query parameter is listed and is sent once", async (t) => {
  const read = (query: string) => readQuery(`/a?${query}`, ["limit", "q"]);
  t.same(
    [...read("limit=1&q=a+b%26c")],
    [
      ["limit", "1"],
      ["q", "a b&c"],
    ],
  );
  t.same([...readQuery("/a", [])], []);
  t.same([...read("q")], [["q", ""]]);
  t.same([...read("q=a;limit=2")], [["q", "a;limit=2"]]);
  for (const query of ["x=1", "Limit=1", "limit%00=1", "limit[]=1", "limit=1&x"]) {
    t.equal(
      codeOf(() => read(query)),
      "unknown_parameter",
      query,
    );
  }
  for (const query of ["limit=1&limit=1", "limit=1&%6cimit=2", "q=%ff", "q=%"]) {
    t.equal(
      codeOf(() => read(query)),
      "bad_request",
      query,
    );
  }
});

function endpoint(method: PresetEndpoint["method"], path: string): PresetEndpoint {
  return { method, path, right: "SELECT", plan: () => ({ accesses: [] }) };
}

const preset: Preset = {
  name: "chroma",
  title: "Test",
  tested: ["1"],
  values: { number: /^\d+$/, any: /^/ },
  headers: [],
  endpoints: [
    endpoint("GET", "/"),
    endpoint("GET", "/:name"),
    endpoint("POST", "/:name"),
    endpoint("GET", "/_all"),
    endpoint("GET", "/:name/:number"),
    endpoint("GET", "/:name/_find"),
    endpoint("GET", "/:name/_files/:any*"),
  ],
  databaseIn: () => undefined,
  version: { path: "/", read: () => undefined },
};

t.test("the most specific path decides, and no wider one adds its methods", async (t) => {
  const find = createFinder(preset);
  const found = (path: string) => {
    const match = find(readPath(path));
    return match && [match.path, [...match.endpoints.keys()].join(" "), match.parameters];
  };
  t.same(found("/"), ["/", "GET", {}]);
  t.same(found("/a"), ["/:name", "GET POST", { name: "a" }]);
  t.same(found("/_all"), ["/_all", "GET", {}]);
  t.same(found("/%5Fall"), ["/_all", "GET", {}]);
  t.same(found("/a/7"), ["/:name/:number", "GET", { name: "a", number: "7" }]);
  t.same(found("/a/_find"), ["/:name/_find", "GET", { name: "a" }]);
  t.same(found("/a/_files/x/y%2Fz"), ["/:name/_files/:any*", "GET", { name: "a", any: "x/y/z" }]);
  for (const path of ["/_any", "/a/", "/a/x", "/_a/7", "/a/_files", "/a/7/8"]) {
    t.equal(found(path), undefined, path);
  }
});
