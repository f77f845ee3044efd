{{- /* The reference of the operator's image. */}}
{{- define "triton-operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* A setting as text; null is empty. Helm would write the number 2000000 as 2e+06. */}}
{{- define "triton-operator.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if not (kindIs "invalid" .) }}{{ toJson . }}{{ end -}}
{{- end }}
