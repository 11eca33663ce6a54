/** A shop in which every row follows from its number, so its size determines all answers. */

/** Rows of the larger tables; each order has one to four `order_lines`. */
export interface Sizes {
  readonly customers: number;
  readonly products: number;
  readonly orders: number;
  readonly reviews: number;
}

/** Sizes with checked answers. */
export const scales = {
  small: { customers: 400, products: 60, orders: 1640, reviews: 470 },
  million: { customers: 60_000, products: 5_000, orders: 246_000, reviews: 70_000 },
} as const satisfies Record<string, Sizes>;
export type Scale = keyof typeof scales;

/** A pseudorandom 32-bit number from field and row. */
function chance(field: number, row: number): number {
  let mixed = Math.imul(row ^ Math.imul(field, 0x9e3779b1), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x27d4eb2f);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}

function pick<T>(from: readonly [T, ...T[]], field: number, row: number): T {
  return from[chance(field, row) % from.length] ?? from[0];
}

const firstNames = [
  ...(["Anna", "Anton", "Ben", "Clara", "David", "Elif"] as const),
  ...(["Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin"] as const),
] as const;
const lastNames = ["Adler", "Brandt", "Costa", "Duval", "Egger", "Fischer", "Gruber"] as const;
const cities = ["Graz", "Lyon", "Milan", "Bern", "Ulm", "Gdansk", null] as const;
/** Countries of customers, unevenly distributed. */
const countries = ["DE", "DE", "DE", "AT", "AT", "CH", "FR", "IT", "PL"] as const;
const categories = ["books", "garden", "kitchen", "music", "toys"] as const;
const adjectives = ["Blue", "Old", "Small", "Quiet", "Round"] as const;
const nouns = ["Lamp", "Atlas", "Spade", "Kettle", "Drum", "Kite"] as const;
const statuses = [
  "paid",
  "paid",
  "paid",
  "open",
  "shipped",
  "shipped",
  "returned",
  "cancelled",
] as const;
const remarks = [null, null, "Works well", "Came broken", "As described", "Too small"] as const;
const stars = [5, 5, 4, 4, 3, 1] as const;
const firstDay = Date.UTC(2024, 0, 1);
const millisecondsOfDay = 86_400_000;

function day(field: number, row: number): string {
  const offset = chance(field, row) % 690;
  return new Date(firstDay + offset * millisecondsOfDay).toISOString().slice(0, 10);
}

export type Customer = ReturnType<typeof customer>;
export type Product = ReturnType<typeof product>;
export type Line = ReturnType<Shop["lines"]>[number];
export type Order = ReturnType<Shop["order"]>;
export type Review = ReturnType<Shop["review"]>;

function customer(id: number) {
  const [first, last] = [pick(firstNames, 1, id), pick(lastNames, 2, id)];
  return {
    id,
    name: `${first} ${last}`,
    email: `${first}.${last}.${id}@example.com`,
    country: pick(countries, 3, id),
    city: pick(cities, 4, id),
    vip: chance(5, id) % 20 === 0,
    joined: day(6, id),
  };
}

function product(id: number) {
  return {
    id,
    sku: `SKU-${String(id).padStart(5, "0")}`,
    name: `${pick(adjectives, 11, id)} ${pick(nouns, 12, id)} ${id}`,
    category: pick(categories, 13, id),
    price_cents: 100 + (chance(14, id) % 49_900),
    discontinued: chance(15, id) % 12 === 0,
  };
}

function stockOf(productId: number) {
  return {
    product_id: productId,
    north: 20 + (chance(41, productId) % 80),
    south: chance(42, productId) % 50,
  };
}

function coupon(number: number) {
  const code = `C${String(number).padStart(2, "0")}`;
  return { code, percent: 5 * (1 + (number % 6)), uses: chance(51, number) % 30 };
}

function cart(id: number) {
  return { id, customer_id: id, product_id: 1 + (id % 9), quantity: 1 + (id % 3) };
}

function* numbered<Row>(count: number, row: (number: number) => Row): Generator<Row> {
  for (let number = 1; number <= count; number++) yield row(number);
}

/** The rows of a shop. Row numbers start at 1. */
export class Shop {
  readonly sizes: Sizes;

  constructor(sizes: Sizes) {
    this.sizes = sizes;
  }

  customer = customer;
  product = product;
  coupon = coupon;
  stockOf = stockOf;

  /** The last three products were never sold. */
  lines(orderId: number) {
    const count = 1 + (chance(21, orderId) % 4);
    return Array.from({ length: count }, (_, index) => {
      const row = orderId * 4 + index;
      const bought = product(1 + (chance(22, row) % (this.sizes.products - 3)));
      const quantity = 1 + (chance(23, row) % 5);
      return {
        order_id: orderId,
        line: index + 1,
        product_id: bought.id,
        quantity,
        cents: quantity * bought.price_cents,
      };
    });
  }

  /** The last twentieth of the customers have never ordered. */
  order(id: number) {
    const buyers = Math.floor(this.sizes.customers * 0.95);
    const buyer = customer(1 + (chance(31, id) % buyers));
    const total_cents = this.lines(id).reduce((sum, { cents }) => sum + cents, 0);
    return {
      id,
      customer_id: buyer.id,
      day: day(32, id),
      status: pick(statuses, 33, id),
      country: buyer.country,
      coupon: chance(34, id) % 10 === 0 ? coupon(1 + (chance(35, id) % 20)).code : null,
      total_cents,
    };
  }

  review(id: number) {
    return {
      id,
      product_id: 1 + (chance(61, id) % this.sizes.products),
      customer_id: 1 + (chance(62, id) % this.sizes.customers),
      stars: pick(stars, 63, id),
      text: pick(remarks, 64, id),
      day: day(65, id),
    };
  }

  customers(): Generator<Customer> {
    return numbered(this.sizes.customers, customer);
  }

  products(): Generator<Product> {
    return numbered(this.sizes.products, product);
  }

  orders(): Generator<Order> {
    return numbered(this.sizes.orders, (id) => this.order(id));
  }

  *orderLines(): Generator<Line> {
    for (let id = 1; id <= this.sizes.orders; id++) yield* this.lines(id);
  }

  reviews(): Generator<Review> {
    return numbered(this.sizes.reviews, (id) => this.review(id));
  }

  stock() {
    return numbered(this.sizes.products, stockOf);
  }

  coupons() {
    return numbered(20, coupon);
  }

  carts() {
    return numbered(10, cart);
  }
}
