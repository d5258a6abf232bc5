package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad/internal/pricelist"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

// pricesImport is what `prices import` was asked for.
type pricesImport struct {
	file, format, id, from string
	maps                   []string // PRICE=MODEL
	apply                  bool
}

func pricesCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "prices", Short: "Make a price version of a public table"}
	p := &pricesImport{}
	imports := &cobra.Command{
		Use: "import FILE", Short: "Read LiteLLM's or models.dev's table; shows what would change", Args: cobra.ExactArgs(1),
		Long: "Read model prices out of LiteLLM's model_prices_and_context_window.json or the api.json of models.dev, a file on\n" +
			"this machine. Shows the difference to the newest price version and the entry for org.yaml; --apply adds it. What the\n" +
			"table does not say of a price stays as it was: that, and all that the table says and the entry does not, is\n" +
			"listed on standard error. Entries whose model is not found stay as they are.\n\n" +
			"Without --map the model of each deployment is looked for, its base_model first.",
		Example: "  quotad prices import prices.json --id 2026-12 --valid-from 2026-12-01 > entry.yaml\n" +
			"  quotad prices import prices.json --map mid=gpt-5.2 --map claude=claude-sonnet-5 --apply",
	}
	f := imports.Flags()
	f.StringVar(&p.format, "format", "", "litellm or models.dev; default what the file looks like")
	f.StringArrayVar(&p.maps, "map", nil, "PRICE=MODEL: an entry of per_million_usd, and the table's name of its model; repeatable")
	f.StringVar(&p.id, "id", "", "of the new price version; default the day it begins")
	f.StringVar(&p.from, "valid-from", "", "yyyy-mm-dd or RFC 3339; default now")
	f.BoolVar(&p.apply, "apply", false, "add the price version")
	imports.RunE = func(cmd *cobra.Command, args []string) error {
		p.file = args[0]
		return p.run(cmd, c, time.Now())
	}
	cmd.AddCommand(imports)
	return cmd
}

func (p *pricesImport) run(cmd *cobra.Command, c *console, now time.Time) error {
	table, err := p.table(cmd)
	if err != nil {
		return err
	}
	get := func(kind string) ([]*adminv1.ConfigObject, error) {
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.Get, &adminv1.GetRequest{Kind: kind})
		return m.GetObjects(), err
	}
	prices, err := get(registry.KindPrice)
	if err != nil {
		return err
	}
	newest, list, err := newestOf(prices)
	if err != nil {
		return err
	}
	deployments, err := get(registry.KindDeployment)
	if err != nil {
		return err
	}
	models, remarks, err := p.models(table, deployments, list)
	if err != nil {
		return err
	}
	after, more, err := p.version(now, table, models, newest, list)
	for _, r := range append(remarks, more...) {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", r)
	}
	if err != nil {
		return err
	}
	for _, o := range prices {
		if o.GetId() == after.ID {
			return fmt.Errorf("--id: there is a price version %q: versions are never edited", after.ID)
		}
	}
	d := registry.Compare(newest, after)
	out := &adminv1.ApplyResponse{Differences: []*adminv1.Difference{
		{Action: registry.ActionCreate, Kind: d.Kind, Id: d.ID, Lines: d.Lines},
	}}
	if p.apply {
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.PutPrice, &adminv1.PutPriceRequest{
			Version: after.ID, SpecJson: string(after.Spec), Actor: actor(),
		})
		if err != nil {
			return err
		}
		out.Version = m.GetVersion()
	}
	return c.print(cmd.OutOrStdout(), out, func(w *tabwriter.Writer) {
		if p.apply {
			differences(w, out.GetDifferences(), colourful(cmd.OutOrStdout()))
			fmt.Fprintf(w, "price version %s applied; version %d\n", after.ID, out.GetVersion())
			return
		}
		for _, l := range d.Lines {
			fmt.Fprintln(w, "#", l)
		}
		fmt.Fprint(w, after.YAML())
	})
}

func (p *pricesImport) table(cmd *cobra.Command) (*pricelist.Table, error) {
	if p.format != "" && !slices.Contains(pricelist.Formats(), p.format) {
		return nil, fmt.Errorf("--format: %q is none of %s", p.format, strings.Join(pricelist.Formats(), ", "))
	}
	text, err := whole(cmd, "FILE", p.file, pricelist.FileBytesMax)
	if err != nil {
		return nil, err
	}
	t, err := pricelist.Read(p.format, text)
	if err != nil {
		return nil, fmt.Errorf("FILE: %s: %w", shown(p.file), err)
	}
	return t, nil
}

// priceList is the spec of a price version, its prices as they stand.
type priceList struct {
	ValidFrom     registry.Time              `json:"valid_from"`
	PerMillionUSD map[string]json.RawMessage `json:"per_million_usd"`
}

// newestOf finds the price version that begins last; without one it is empty.
func newestOf(objects []*adminv1.ConfigObject) (registry.Object, priceList, error) {
	newest, list := registry.Object{Kind: registry.KindPrice}, priceList{}
	for _, o := range objects {
		var l priceList
		if err := json.Unmarshal([]byte(o.GetSpecJson()), &l); err != nil {
			return newest, list, fmt.Errorf("price version %s: %w", o.GetId(), err)
		}
		if newest.ID == "" || l.ValidFrom > list.ValidFrom {
			newest.ID, newest.Spec, list = o.GetId(), []byte(o.GetSpecJson()), l
		}
	}
	return newest, list, nil
}

// models says which model of the table each price is that of.
func (p *pricesImport) models(table *pricelist.Table, deployments []*adminv1.ConfigObject, list priceList) (
	models map[string]string, remarks []string, err error,
) {
	models = map[string]string{}
	specs := make([]registry.Deployment, len(deployments))
	for i, o := range deployments {
		if err := json.Unmarshal([]byte(o.GetSpecJson()), &specs[i]); err != nil {
			return nil, nil, fmt.Errorf("deployment %s: %w", o.GetId(), err)
		}
		specs[i].ID = o.GetId()
	}
	for _, m := range p.maps {
		price, model, ok := strings.Cut(m, "=")
		switch {
		case !ok || price == "" || model == "":
			return nil, nil, fmt.Errorf("--map: %q is not PRICE=MODEL", m)
		case models[price] != "":
			return nil, nil, fmt.Errorf("--map: %s is there twice", price)
		}
		models[price] = model
		used := slices.ContainsFunc(specs, func(d registry.Deployment) bool { return d.Price == price })
		if list.PerMillionUSD[price] == nil && !used {
			remarks = append(remarks, fmt.Sprintf("price %s is new: no price version has it, and no deployment uses it yet", price))
		}
	}
	if len(p.maps) > 0 {
		return models, remarks, nil
	}
	for _, d := range specs {
		if d.Price == "" {
			continue
		}
		model := inTable(table, &d)
		switch {
		case model == "":
			remarks = append(remarks, fmt.Sprintf("deployment %s: the table has no price of model %s: price %s stays as it is", d.ID, d.Model, d.Price))
		case models[d.Price] != "" && models[d.Price] != model:
			return nil, nil, fmt.Errorf("price %s is that of %s and of %s: say which by --map", d.Price, models[d.Price], model)
		default:
			models[d.Price] = model
		}
	}
	return models, remarks, nil
}

// tableProviders are the tables' names of providers.
var tableProviders = map[string][]string{
	"openai": {"openai"}, "anthropic": {"anthropic"}, "azure": {"azure"}, "bedrock": {"bedrock", "amazon-bedrock"},
	"gemini": {"gemini", "google"}, "vertex": {"vertex_ai", "google-vertex", "google-vertex-anthropic"},
}

// inTable finds a deployment's model by its exact name, as its own provider sells it before all others. What a deployment
// calls its model may tell nothing, or be the name of another one: its base_model comes first.
func inTable(table *pricelist.Table, d *registry.Deployment) string {
	names := tableProviders[d.Provider]
	if d.Vendor != "" {
		names = append(slices.Clone(names), d.Vendor)
	}
	for _, model := range []string{d.BaseModel, d.Model} {
		for _, p := range names {
			if name := p + "/" + model; table.Has(name) {
				return name
			}
		}
		if table.Has(model) {
			return model
		}
	}
	return ""
}

// version is the new price version: the newest one with the table's prices in it.
func (p *pricesImport) version(now time.Time, table *pricelist.Table, models map[string]string, newest registry.Object, list priceList) (
	after registry.Object, remarks []string, err error,
) {
	if len(models) == 0 {
		return after, nil, errors.New("no price is that of a model in the table: name them by --map PRICE=MODEL")
	}
	from := now.UTC().Truncate(time.Second)
	if p.from != "" {
		if from, err = moment(p.from); err != nil {
			return after, nil, fmt.Errorf("--valid-from: %w", err)
		}
	}
	if newest.ID != "" && from.UnixMilli() <= int64(list.ValidFrom) {
		return after, nil, fmt.Errorf("--valid-from: %s is not after the newest price version, %s, which begins %s",
			from.Format(time.RFC3339), newest.ID, when(int64(list.ValidFrom)))
	}
	next := priceList{ValidFrom: registry.Time(from.UnixMilli()), PerMillionUSD: map[string]json.RawMessage{}}
	for name, price := range list.PerMillionUSD {
		next.PerMillionUSD[name] = price
	}
	var faults []error
	for name, model := range models {
		entry, said, err := table.Price(model)
		remarks = append(remarks, said...)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if stored := list.PerMillionUSD[name]; stored != nil {
			if entry, said, err = pricelist.Keep(entry, stored); err != nil {
				return after, remarks, fmt.Errorf("price %s: %w", name, err)
			}
			for _, r := range said {
				remarks = append(remarks, fmt.Sprintf("price %s: %s", name, r))
			}
		}
		next.PerMillionUSD[name] = entry
	}
	slices.Sort(remarks)
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		return after, remarks, errors.Join(faults...)
	}
	spec, err := json.Marshal(next)
	if err != nil {
		return after, remarks, err
	}
	after, err = registry.ParseObject(registry.KindPrice, cmp.Or(p.id, from.Format(time.DateOnly)), spec)
	return after, remarks, err
}

func moment(s string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		t, err = time.Parse(time.RFC3339, s)
	}
	if err != nil {
		return t, fmt.Errorf("%q is neither yyyy-mm-dd nor an RFC 3339 time", s)
	}
	return t.UTC(), nil
}
