{{/*
A dashboard in Grafana's model, as YAML. Call with (dict "path" PATH "content" CONTENT) of a file in dashboards/. Its keys:

  title, description
  range          the time range that it opens with; 6h if not set
  variables      what a user chooses from: the values of the label `name` of `metric`, shown as `label`
  panels         in rows from left to right; a panel that does not fit into its row begins the next one

The keys of a panel:

  title, description
  kind           timeseries if not set, or stat, bargauge or table
  width, height  of 24 columns, and in rows of 30 pixels; 12 and 8 if not set, of a stat 6 and 4
  unit           Grafana's name of it: none, bytes, percentunit (1 is 100 %), s, ...
  max            of the axis, which begins at 0
  stacked        true if the series lie on top of each other
  redFrom        the value from which on a stat is red, below it green
  queries        a list of LEGEND: PROMQL, with {{name}} for a label's value in the legend; of a table, of COLUMN: PROMQL
*/}}
{{- define "aliquot.dashboard" -}}
{{- $path := .path }}
{{- $dashboard := .content | toString | fromYaml }}
{{- with $dashboard.Error }}{{ fail (printf "%s: %s" $path .) }}{{ end }}
{{- with keys (omit $dashboard "title" "description" "range" "variables" "panels") }}
{{- fail (printf "%s: unknown key: %s" $path (join ", " .)) }}
{{- end }}
{{- $prometheus := dict "type" "prometheus" "uid" "${datasource}" | toJson }}
uid: aliquot-{{ base $path | trimSuffix ".yaml" }}
title: {{ printf "Aliquot / %s" $dashboard.title | toJson }}
description: {{ $dashboard.description | toJson }}
tags: [aliquot]
schemaVersion: 39
version: 1
editable: true
refresh: 30s
time: {from: now-{{ $dashboard.range | default "6h" }}, to: now}
timezone: browser
graphTooltip: 1
annotations: {list: []}
links:
- {title: Aliquot, type: dashboards, tags: [aliquot], asDropdown: true, keepTime: true, includeVars: true}
templating:
  list:
  - {name: datasource, label: Data source, type: datasource, query: prometheus, current: {}}
  {{- range $dashboard.variables }}
  {{- $values := printf "label_values(%s, %s)" .metric .name | toJson }}
  - name: {{ .name }}
    label: {{ .label | toJson }}
    type: query
    datasource: {{ $prometheus }}
    definition: {{ $values }}
    query: {query: {{ $values }}, refId: {{ .name }}}
    refresh: 2
    sort: 1
    includeAll: true
    multi: true
    allValue: .+
    current: {text: [All], value: [$__all]}
  {{- end }}
panels:
{{- $x := 0 }}
{{- $y := 0 }}
{{- $rowHeight := 0 }}
{{- range $index, $panel := $dashboard.panels }}
{{- with keys (omit . "title" "description" "kind" "width" "height" "unit" "max" "stacked" "redFrom" "queries") }}
{{- fail (printf "%s: panel %q: unknown key: %s" $path $panel.title (join ", " .)) }}
{{- end }}
{{- $kind := .kind | default "timeseries" }}
{{- $width := .width | default (ternary 6 12 (eq $kind "stat")) }}
{{- $height := .height | default (ternary 4 8 (eq $kind "stat")) }}
{{- if gt (add $x $width) 24 }}
{{- $x = 0 }}
{{- $y = add $y $rowHeight }}
{{- $rowHeight = 0 }}
{{- end }}
- id: {{ add1 $index }}
  type: {{ $kind }}
  title: {{ .title | toJson }}
  {{- with .description }}
  description: {{ . | toJson }}
  {{- end }}
  datasource: {{ $prometheus }}
  gridPos: {"x": {{ $x }}, "y": {{ $y }}, w: {{ $width }}, h: {{ $height }}}
  fieldConfig:
    defaults:
      unit: {{ .unit | toJson }}
      {{- if eq $kind "timeseries" }}
      min: 0
      {{- end }}
      {{- if hasKey . "max" }}
      max: {{ .max }}
      {{- end }}
      {{- if .stacked }}
      custom: {fillOpacity: 20, stacking: {mode: normal}}
      {{- end }}
      {{- if hasKey . "redFrom" }}
      thresholds: {mode: absolute, steps: [{color: green, value: null}, {color: red, value: {{ .redFrom }}}]}
      {{- end }}
  targets:
  {{- $columns := dict }}
  {{- range $number, $query := .queries }}
  {{- $refId := printf "%c" (add 65 $number) }}
  {{- range $legend, $expression := $query }}
  - refId: {{ $refId }}
    expr: {{ $expression | toJson }}
    {{- if ne $kind "timeseries" }}
    instant: true
    {{- end }}
    {{- if eq $kind "table" }}
    format: table
    {{- $_ := set $columns (eq (len $panel.queries) 1 | ternary "Value" (printf "Value #%s" $refId)) $legend }}
    {{- else }}
    legendFormat: {{ $legend | toJson }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- if eq $kind "timeseries" }}
  options: {tooltip: {mode: multi, sort: desc}}
  {{- else if eq $kind "stat" }}
  options: {reduceOptions: {calcs: [lastNotNull]}, colorMode: value, graphMode: none}
  {{- else if eq $kind "bargauge" }}
  options: {reduceOptions: {calcs: [lastNotNull]}, orientation: horizontal, displayMode: basic}
  {{- else if eq $kind "table" }}
  transformations:
  - {id: merge, options: {}}
  - {id: organize, options: {excludeByName: {Time: true}, renameByName: {{ $columns | toJson }}}}
  {{- else }}
  {{- fail (printf "%s: panel %q: unknown kind: %s" $path .title $kind) }}
  {{- end }}
{{- $x = add $x $width }}
{{- $rowHeight = max $rowHeight $height }}
{{- end }}
{{- end }}
