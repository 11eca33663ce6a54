import t from "tap";
import { ByShape } from "../../src/engine/sql/fragment.ts";

t.test("a shape is worked out once for a table, and apart for another one", (t) => {
  const shapes = new ByShape<{ readonly made: number }>();
  let made = 0;
  const find = (table: object, shape: string) => {
    const make = () => {
      made += 1;
      return { made };
    };
    return shapes.find(table, shape, make).made;
  };
  const [users, others] = [{}, {}];
  t.same([find(users, "a"), find(users, "b"), find(users, "a"), find(others, "a")], [1, 2, 1, 3]);

  const long = "a".repeat(5000);
  t.same([find(users, long), find(users, long)], [4, 5], "a long one is not remembered");
  for (let shape = 0; shape < 100; shape += 1) find(users, String(shape));
  t.equal(find(users, "a"), 106, "no more than a hundred are");
  t.equal(find(others, "a"), 3);
  t.end();
});

t.test("a shape that is refused is refused each time", (t) => {
  const shapes = new ByShape<object>();
  const users = {};
  const refuse = () => {
    throw new Error("There is no such column");
  };
  for (const _ of [1, 2]) t.throws(() => shapes.find(users, "a", refuse), /no such column/);
  t.end();
});
